#include "checkpoint/load.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/rank_file.h"
#include "config/schema/optimizers.h"
#include "config/schema/words.h"
#include "device/slab.h"
#include "plan/ownership/ownership.h"
#include "weights/hugging_face.h"

namespace trainctl {

namespace {

constexpr std::size_t max_listed = 8;

std::string listed(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < max_listed; ++i) text += "\n  " + lines[i];
  if (lines.size() > max_listed) {
    text += formatted("\n  and {} more", lines.size() - max_listed);
  }
  return text;
}

/// A value of a parameter that a resumed run needs.
struct Wanted {
  std::string word;                    // a word of saved_values()
  const SavedTensor* saved = nullptr;  // the tensor to load; null if `begins`
  bool begins = false;                 // starts from scratch, without a saved value
};

/// The tensors of a checkpoint that a resumed run needs.
class Index {
 public:
  explicit Index(const Manifest& manifest) : manifest_(manifest) {
    for (const SavedTensor& tensor : manifest.tensors) {
      tensors_[{tensor.name, tensor.value}] = &tensor;
    }
  }

  /// The values of a parameter, in the order of saved_values. `all`: also the optimizer's. `begins`
  /// is set for an average that the checkpoint lacks, and for values of the optimizer if another
  /// one updated the parameter.
  std::vector<Wanted> wanted(const ParamSpec& parameter, const OptimizerConfig& optimizer,
                             bool all) const {
    std::vector<Wanted> values{{"parameters", find(parameter.name, "parameters")}};
    if (!all) return values;
    const bool begins = begins_optimizer(parameter, optimizer);
    for (const OptimizerState& state : kept_states(parameter.update, optimizer)) {
      values.push_back({std::string(state.word)});
      Wanted& one = values.back();
      one.begins = state.word == weight_average.word ? !has_averages(manifest_) : begins;
      if (!one.begins) one.saved = find(parameter.name, one.word);
    }
    return values;
  }

  /// Whether the optimizer keeps values for the parameter and the checkpoint has none of these.
  bool begins_optimizer(const ParamSpec& parameter, const OptimizerConfig& optimizer) const {
    const std::vector<OptimizerState> kept = kept_states(parameter.update, optimizer);
    const std::span updated(kept.data(),
                            static_cast<std::size_t>(updated_states(parameter.update, optimizer)));
    return !updated.empty() && std::ranges::none_of(updated, [&](const OptimizerState& state) {
      const SavedTensor* saved = find(parameter.name, std::string(state.word));
      return saved != nullptr && is_of(*saved, parameter.update);
    });
  }

 private:
  const SavedTensor* find(const std::string& name, const std::string& value) const {
    const auto found = tensors_.find({name, value});
    return found == tensors_.end() ? nullptr : found->second;
  }

  /// Whether the value belongs to an optimizer of this type. Earlier versions named only the run's
  /// optimizer; a value that this optimizer does not have may then belong to any other.
  bool is_of(const SavedTensor& saved, OptimizerType type) const {
    const std::string& named = saved.optimizer.empty() ? manifest_.optimizer : saved.optimizer;
    if (named == word_of(type)) return true;
    return saved.optimizer.empty() &&
           std::ranges::none_of(optimizer_rows, [&](const OptimizerRow& row) {
             return named == word_of(row.type) &&
                    std::ranges::find(row.states, saved.value, &OptimizerState::word) !=
                        row.states.end();
           });
  }

  const Manifest& manifest_;
  std::map<std::pair<std::string, std::string>, const SavedTensor*> tensors_;
};

/// The advice for a checkpoint that cannot be read: resume from an older one.
std::string way_past(const std::filesystem::path& checkpoint) {
  const std::filesystem::path run = checkpoint.parent_path().parent_path();
  bool is_older = false;
  for (const CheckpointFolder::Entry& entry : CheckpointFolder(run).complete()) {
    if (is_older) {
      return formatted("; move {} away: the run then continues after step {}", checkpoint.string(),
                       entry.step);
    }
    is_older = entry.path == checkpoint;
  }
  return "";
}

void fill(const Manifest& manifest, const std::filesystem::path& directory, const Plan& plan,
          const OptimizerConfig& optimizer, bool all, std::int64_t rank, ParamStore& store) {
  const Index index(manifest);
  PieceReader reader(manifest, directory);
  const int kinds = all ? saved_kinds(store.table(), optimizer) : 1;
  for (int value = 0; value < kinds; ++value) {
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      const ParamSpec& parameter = at(store.table(), i);
      const Slice held = store.owned(i);
      const std::vector<Wanted> values = index.wanted(parameter, optimizer, all);
      if (held.length() == 0 || value >= std::ssize(values)) continue;
      const Wanted& wanted = at(values, value);
      require(wanted.begins || wanted.saved != nullptr, ExitCode::internal,
              "an unchecked checkpoint is loaded");
      const HostValues on_host(values_at(store, value, i, held.begin, held.length()));
      const Tensor& memory = on_host.values();
      std::vector<float> wide;  // used if the memory is not fp32
      if (memory.dtype != DType::f32) wide.resize(static_cast<std::size_t>(memory.numel()));
      float* const begin = wide.empty() ? memory.as<float>() : wide.data();
      std::memset(memory.data, 0, static_cast<std::size_t>(memory.bytes()));
      const Box share = shard_box(parameter, plan.mesh, rank);
      for (const Box& part : cut_into_boxes(share, held)) {
        if (wanted.begins) break;
        float* target = begin + (index_in(share, part) - held.begin);
        for (const SavedPiece& piece : wanted.saved->pieces) {
          const Box shared = intersection(part, piece.box);
          if (shared.numel() > 0) reader.copy(*wanted.saved, piece, shared, part, target);
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

std::vector<std::string> begun_parameters(const Manifest& manifest, const Plan& plan,
                                          const OptimizerConfig& optimizer) {
  const Index index(manifest);
  std::set<std::string> names;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& parameter : stage.parameters) {
      if (index.begins_optimizer(parameter, optimizer)) names.insert(parameter.name);
    }
  }
  return {names.begin(), names.end()};
}

void check_fits(const Manifest& manifest, const std::filesystem::path& directory, const Plan& plan,
                const OptimizerConfig& optimizer, bool values) {
  const Index index(manifest);
  std::vector<std::string> wrong;
  std::set<std::string> known;
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& parameter : stage.parameters) {
      if (!known.insert(parameter.name).second) continue;
      const Shape shape = saved_shape(parameter, plan.model);
      for (const Wanted& wanted : index.wanted(parameter, optimizer, values)) {
        const std::string title = wanted.word + " of " + parameter.name;
        if (wanted.begins) continue;
        if (wanted.saved == nullptr) {
          wrong.push_back(title + " " + shape.to_string() + " is missing");
        } else if (wanted.saved->shape != shape) {
          wrong.push_back(title + " is " + wanted.saved->shape.to_string() +
                          " in the checkpoint and " + shape.to_string() + " in the model");
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

namespace {

/// The parameters of a checkpoint as stored weights: for export, and for `generate` in any layout.
class CheckpointWeights : public StoredWeights {
 public:
  CheckpointWeights(const std::filesystem::path& path, const ModelShape& model, bool averages)
      : directory_(path),
        value_(averages ? std::string(weight_average.word) : "parameters"),
        manifest_(read_manifest(path)),
        reader_(manifest_, path) {
    require(!averages || has_averages(manifest_), ExitCode::missing_input,
            path.string() +
                " has no average of weights: a run keeps one with optimizer.ema_decay above 0");
    for (const ParamSpec& parameter : make_parameters(model, Mesh{})) {
      const SavedTensor* saved = manifest_.find(parameter.name, value_);
      const Shape shape = saved_shape(parameter, model);
      require(saved != nullptr && saved->shape == shape, ExitCode::bad_data,
              path.string() + ": the parameter " + parameter.name + " " + shape.to_string() +
                  (saved == nullptr ? " is missing" : " is " + saved->shape.to_string()));
    }
  }

  void read(const std::string& name, const MatrixBox& box, float* out) const override {
    const SavedTensor* saved = manifest_.find(name, value_);
    require(saved != nullptr, ExitCode::bad_data,
            directory_.string() + " has no parameter " + name);
    Box wanted;
    if (saved->shape.rank() == 1) {
      wanted = {{box.row}, {box.rows}};
    } else if (saved->shape.rank() == 3) {
      const std::int64_t rows = saved->shape[1];
      wanted = {{box.row / rows, box.row % rows, box.column}, {1, box.rows, box.columns}};
    } else {
      wanted = {{box.row, box.column}, {box.rows, box.columns}};
    }
    for (const SavedPiece& piece : saved->pieces) {
      const Box shared = intersection(wanted, piece.box);
      if (shared.numel() > 0) copy(*saved, piece, shared, wanted, out);
    }
  }

 private:
  void copy(const SavedTensor& tensor, const SavedPiece& piece, const Box& part, const Box& to,
            float* out) const {
    try {
      reader_.copy(tensor, piece, part, to, out);
    } catch (const Error& error) {
      const bool is_there = kind_of_file(directory_ / manifest_name) != FileKind::none;
      if (is_there || error.code() == ExitCode::io) throw;
      throw Error(ExitCode::missing_input,
                  directory_.string() +
                      " was removed by its run while it was read; start again, and the newest "
                      "checkpoint is taken");
    }
  }

  const std::filesystem::path directory_;
  const std::string value_;  // a word of saved_values()
  const Manifest manifest_;
  mutable PieceReader reader_;
};

}  // namespace

std::unique_ptr<StoredWeights> open_weights(const std::filesystem::path& directory,
                                            const ModelShape& model, bool averages) {
  if (kind_of_file(directory / manifest_name) != FileKind::none) {
    return std::make_unique<CheckpointWeights>(directory, model, averages);
  }
  const auto checkpoints = CheckpointFolder(directory).complete();
  const bool has_weights = kind_of_file(directory / "model.safetensors") != FileKind::none;
  if (!checkpoints.empty() && (averages || !has_weights)) {
    return std::make_unique<CheckpointWeights>(checkpoints.front().path, model, averages);
  }
  require(
      !averages, ExitCode::missing_input,
      directory.string() + " has no checkpoint, and only checkpoints hold an average of weights");
  return std::make_unique<HuggingFaceWeights>(directory, model);
}

}  // namespace trainctl
