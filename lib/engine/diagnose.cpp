#include "engine/diagnose.h"

#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace trainctl {

namespace {

template <class T>
bool finite(const Tensor& x) {
  const T* values = x.as<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!std::isfinite(to_float(values[i]))) return false;
  }
  return true;
}

std::uint64_t hash_of(const ParamStore& store) {
  std::uint64_t hash = fnv_offset;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Tensor values = store.master(i);
    hash = fnv1a({static_cast<const char*>(values.data), static_cast<std::size_t>(values.bytes())},
                 hash);
  }
  return hash;
}

std::string who_differs(const std::vector<std::uint64_t>& hashes) {
  std::string ranks;
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return ranks;
}

}  // namespace

bool all_finite(const Tensor& x) {
  if (x.dtype == DType::f32) return finite<float>(x);
  if (x.dtype == DType::bf16) return finite<bf16>(x);
  return true;
}

std::string first_bad_tensor(const StagePlan& stage, const ParamStore& store,
                             const Buffers& buffers, int slot) {
  const int count = static_cast<int>(store.table().size());
  for (int i = 0; i < count; ++i) {
    const std::string& name = store.table()[static_cast<std::size_t>(i)].name;
    if (!all_finite(store.master(i))) return "parameter " + name;
  }
  for (const ActivationSpec& spec : stage.activations) {
    if (spec.lifetime != Lifetime::kept) continue;
    if (!all_finite(buffers.at(slot, spec.name))) return "activation " + spec.name;
  }
  for (int i = 0; i < count; ++i) {
    const std::string& name = store.table()[static_cast<std::size_t>(i)].name;
    if (!all_finite(store.gradient(i))) return "gradient of " + name;
  }
  return "";
}

void check_replicas(const ParamStore& store, Group& group, std::int64_t step) {
  const auto whole = gather_values(group, hash_of(store));
  if (who_differs(whole).empty()) return;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    const Tensor values = store.master(i);
    const std::string_view bytes{static_cast<const char*>(values.data),
                                 static_cast<std::size_t>(values.bytes())};
    const std::string ranks = who_differs(gather_values(group, fnv1a(bytes)));
    if (ranks.empty()) continue;
    throw Error(ExitCode::peer, "after step " + std::to_string(step) + " the replicas of " +
                                    store.table()[static_cast<std::size_t>(i)].name +
                                    " differ: rank(s) " + ranks + " of group '" + group.name() +
                                    "' do not hold the values of its rank 0");
  }
}

}  // namespace trainctl
