#include "run/data/continuation.h"

#include <cstring>
#include <string>

#include "base/log.h"
#include "comm/others_wait.h"
#include "run/data/corpus.h"

namespace trainctl {

namespace {

/// What rank 0 makes, on all ranks.
template <class Make>
std::string made_by_first(Group& everyone, const char* what, const Make& make) {
  std::string text;
  while_others_wait(everyone, what, everyone.rank() == 0, [&] { text = make(); });
  broadcast_bytes(everyone, text, 0);
  return text;
}

Progress progress_of(const Manifest& manifest) {
  const TrainState& state = manifest.state;
  return {.steps = state.step,
          .samples = state.samples,
          .positions = state.positions,
          .updates = state.updates,
          .planned_steps = manifest.steps,
          .planned = manifest.length};
}

}  // namespace

Continuation read_continuation(const std::filesystem::path& checkpoint, Group& everyone) {
  const std::string text =
      made_by_first(everyone, "the checkpoint", [&] { return read_manifest_text(checkpoint); });
  Continuation continuation;
  continuation.manifest = parse_manifest(text, (checkpoint / manifest_name).string());
  continuation.progress = progress_of(continuation.manifest);
  return continuation;
}

void find_data_place(Continuation& continuation, const Config& config, Group& everyone) {
  const std::string bytes = made_by_first(everyone, "data.train", [&] {
    const std::vector<SourceIdentity> identities = identify_sources(config.data);
    return std::string(reinterpret_cast<const char*>(identities.data()),
                       identities.size() * sizeof(SourceIdentity));
  });
  continuation.identities.resize(bytes.size() / sizeof(SourceIdentity));
  std::memcpy(continuation.identities.data(), bytes.data(), bytes.size());
  const Manifest& manifest = continuation.manifest;
  if (!manifest.data) {
    if (everyone.rank() != 0) return;
    log_info(
        "the checkpoint does not say what its data was: it is taken to be the same, read in "
        "the same blend and seq_length");
    return;
  }
  continuation.data = go_on_in_data(*manifest.data, manifest.state.samples,
                                    {.data = config.data,
                                     .identities = continuation.identities,
                                     .seq_length = config.model.seq_length,
                                     .seed = config.train.seed});
  if (everyone.rank() != 0) return;
  for (const std::string& note : continuation.data->notes) log_info(note);
}

std::int64_t windows_behind(const Continuation& continuation, const Config& config) {
  Dataset data = open_train_data(config.data, config.model.seq_length, config.train.seed);
  const DataPosition position = continuation.data ? continuation.data->position
                                                  : data.position(continuation.progress.samples);
  data.go_on(position);
  return data.windows_behind();
}

}  // namespace trainctl
