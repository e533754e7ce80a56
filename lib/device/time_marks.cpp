#include "device/time_marks.h"

#include <cassert>

#include "device/cuda_device.h"

namespace trainctl {

TimeMarks::~TimeMarks() {
  for (void* mark : marks_) cuda_module().release_mark(mark);
}

std::size_t TimeMarks::set(const Stream& stream) {
  assert(stream.device() == DeviceKind::cuda);
  const CudaModule& cuda = cuda_module();
  if (used_ == marks_.size()) marks_.push_back(cuda.make_mark());
  cuda.set_mark(marks_[used_], stream.native());
  return used_++;
}

double TimeMarks::seconds(std::size_t mark) const {
  assert(mark < used_);
  return cuda_module().seconds_between(marks_[0], marks_[mark]);
}

}  // namespace trainctl
