#include "checkpoint/checkpoint_weights.h"

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/manifest.h"
#include "checkpoint/piece_reader.h"
#include "config/schema/optimizers.h"
#include "plan/ownership/ownership.h"
#include "weights/hugging_face_weights.h"

namespace trainctl {

struct CheckpointWeights::Impl {
  Impl(const std::filesystem::path& path, bool averages)
      : directory(path),
        value(averages ? std::string(weight_average.word) : "parameters"),
        manifest(read_manifest(path)),
        reader(manifest, path) {}
  void copy(const SavedTensor& tensor, const SavedPiece& piece, const Box& part, const Box& to,
            float* out) {
    try {
      reader.copy(tensor, piece, part, to, out);
    } catch (const Error& error) {
      const bool is_there = kind_of_file(directory / manifest_name) != FileKind::none;
      if (is_there || error.code() == ExitCode::io) throw;
      throw Error(ExitCode::missing_input,
                  directory.string() +
                      " was removed by its run while it was read; start again, and the newest "
                      "checkpoint is taken");
    }
  }
  std::filesystem::path directory;
  std::string value;  // word of saved_values
  Manifest manifest;
  PieceReader reader;
};

CheckpointWeights::CheckpointWeights(const std::filesystem::path& directory,
                                     const ModelShape& model, bool averages)
    : impl_(std::make_unique<Impl>(directory, averages)) {
  require(!averages || has_averages(impl_->manifest), ExitCode::missing_input,
          directory.string() +
              " has no average of weights: a run keeps one with optimizer.ema_decay above 0");
  for (const ParamSpec& parameter : make_parameters(model, Mesh{})) {
    const SavedTensor* saved = impl_->manifest.find(parameter.name, impl_->value);
    const Shape shape = saved_shape(parameter, model);
    require(saved != nullptr && saved->shape == shape, ExitCode::bad_data,
            directory.string() + ": the parameter " + parameter.name + " " + shape.to_string() +
                (saved == nullptr ? " is missing" : " is " + saved->shape.to_string()));
  }
}

CheckpointWeights::~CheckpointWeights() = default;

void CheckpointWeights::read(const std::string& name, const MatrixBox& box, float* out) const {
  const SavedTensor* saved = impl_->manifest.find(name, impl_->value);
  require(saved != nullptr, ExitCode::bad_data,
          impl_->directory.string() + " has no parameter " + name);
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
    if (shared.numel() > 0) impl_->copy(*saved, piece, shared, wanted, out);
  }
}

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
