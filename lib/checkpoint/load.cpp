#include "checkpoint/load.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/at.h"
#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/piece_reader.h"
#include "checkpoint/saved_values.h"
#include "config/schema/optimizers.h"
#include "device/host_values.h"

namespace trainctl {

namespace {

constexpr std::size_t most_listed = 8;

std::string listed(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < most_listed; ++i) text += "\n  " + lines[i];
  if (lines.size() > most_listed) {
    text += "\n  and " + std::to_string(lines.size() - most_listed) + " more";
  }
  return text;
}

/// The tensors by parameter and value.
class Index {
 public:
  explicit Index(const Manifest& manifest) {
    for (const SavedTensor& tensor : manifest.tensors) {
      tensors_[{tensor.name, tensor.value}] = &tensor;
    }
  }
  const SavedTensor* find(const std::string& name, const std::string& value) const {
    const auto found = tensors_.find({name, value});
    return found == tensors_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::pair<std::string, std::string>, const SavedTensor*> tensors_;
};

/// `all`: with the optimizer's values.
std::vector<std::string> values_of(const ParamSpec& parameter, const OptimizerConfig& optimizer,
                                   bool all) {
  std::vector<std::string> values = saved_values(parameter, optimizer);
  if (!all) values.resize(1);
  return values;
}

/// What goes on when a checkpoint cannot be read: the one before it.
std::string way_past(const std::filesystem::path& checkpoint) {
  const std::filesystem::path run = checkpoint.parent_path().parent_path();
  bool is_older = false;
  for (const CheckpointFolder::Entry& entry : CheckpointFolder(run).complete()) {
    if (is_older) {
      return "; move " + checkpoint.string() + " away: the run then goes on after step " +
             std::to_string(entry.step);
    }
    is_older = entry.path == checkpoint;
  }
  return "";
}

void fill(const Manifest& manifest, const std::filesystem::path& directory, const Plan& plan,
          const OptimizerConfig& optimizer, bool all, std::int64_t rank, ParamStore& store) {
  const Index index(manifest);
  PieceReader reader(manifest, directory);
  const bool averaged = has_averages(manifest);
  const int kinds = all ? saved_kinds(store.table(), optimizer) : 1;
  for (int value = 0; value < kinds; ++value) {
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const ParamSpec& parameter = at(store.table(), i);
      const Slice held = store.owned(i);
      const std::vector<std::string> words = values_of(parameter, optimizer, all);
      if (held.length() == 0 || value >= std::ssize(words)) continue;
      const SavedTensor* saved = index.find(parameter.name, at(words, value));
      if (at(words, value) == weight_average.word && !averaged) continue;
      require(saved != nullptr, ExitCode::internal, "an unchecked checkpoint is loaded");
      const HostValues on_host(values_at(store, value, i, held.begin, held.length()));
      const Tensor& memory = on_host.values();
      std::vector<float> wide;  // where the memory has another type
      if (memory.dtype != DType::f32) wide.resize(static_cast<std::size_t>(memory.numel()));
      float* const begin = wide.empty() ? memory.as<float>() : wide.data();
      std::memset(memory.data, 0, static_cast<std::size_t>(memory.bytes()));
      for (const BoxPart& part : cut_into_boxes(shard_box(parameter, plan.mesh, rank), held)) {
        float* target = begin + (part.first - held.begin);
        for (const SavedPiece& piece : saved->pieces) {
          const Box shared = intersection(part.box, piece.box);
          if (shared.numel() > 0) reader.copy(*saved, piece, shared, part.box, target);
        }
      }
      if (!wide.empty()) store_floats(wide.data(), memory);
      on_host.store();
    }
  }
}

}  // namespace

bool has_averages(const Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors, [](const SavedTensor& tensor) {
    return tensor.value == weight_average.word;
  });
}

void check_fits(const Manifest& manifest, const std::filesystem::path& directory, const Plan& plan,
                const OptimizerConfig& optimizer, bool values) {
  const Index index(manifest);
  const bool averaged = has_averages(manifest);
  std::vector<std::string> wrong;
  std::set<std::string> known;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& parameter : stage.parameters) {
      if (!known.insert(parameter.name).second) continue;
      const Shape shape = saved_shape(parameter, plan.model);
      for (const std::string& value : values_of(parameter, optimizer, values)) {
        const SavedTensor* saved = index.find(parameter.name, value);
        const std::string title = value + " of " + parameter.name;
        if (value == weight_average.word && !averaged) continue;  // they begin as the weights
        if (saved == nullptr) {
          wrong.push_back(title + " " + shape.to_string() + " is missing");
        } else if (saved->shape != shape) {
          wrong.push_back(title + " is " + saved->shape.to_string() + " in the checkpoint and " +
                          shape.to_string() + " in the model");
        }
      }
    }
  }
  for (const SavedTensor& tensor : manifest.tensors) {
    if (tensor.value == "parameters" && !known.contains(tensor.name)) {
      wrong.push_back(tensor.name + " " + tensor.shape.to_string() + " is not in the model");
    }
  }
  require(
      wrong.empty(), ExitCode::config,
      "the checkpoint " + directory.string() + " does not fit the configuration:" + listed(wrong));
}

void load_checkpoint(const Manifest& manifest, const std::filesystem::path& directory,
                     const Plan& plan, const OptimizerConfig& optimizer, std::int64_t rank,
                     ParamStore& store, bool values) {
  try {
    fill(manifest, directory, plan, optimizer, values, rank, store);
    if (values && !has_averages(manifest)) store.begin_averages();
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_data && error.code() != ExitCode::missing_input) throw;
    throw Error(error.code(), error.what() + way_past(directory));
  }
}

}  // namespace trainctl
