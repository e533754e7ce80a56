#include "checkpoint/saver.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/units.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/rank_file.h"
#include "comm/group.h"
#include "config/schema/words.h"
#include "device/wait.h"
#include "formats/strategy/file.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto look_interval = std::chrono::milliseconds(10);
constexpr auto notice_interval = std::chrono::seconds(30);

// The nice value of threads that write during the steps, so that steps come first.
constexpr int background_nice = 10;

// The states that a rank reports once its file has ended; before, the processor time of its thread.
constexpr double written_state = -1;
constexpr double failed_state = -2;

SavedLayout layout_of(const Plan& plan, const Config& config) {
  return {.ranks = plan.mesh.world_size(),
          .tp = plan.mesh.tp,
          .cp = plan.mesh.cp,
          .dp = plan.mesh.dp,
          .pp = plan.mesh.pp,
          .chunks = plan.map.chunks,
          .schedule = plan.schedule,
          .compute = std::string(name_of(plan.compute)),
          .parallel_optimizer = config.parallel.parallel_optimizer.enable};
}

/// Lowers the priority; on Linux of the calling thread alone.
void yield_to_steps() { ::setpriority(PRIO_PROCESS, 0, background_nice); }

double processor_seconds_of_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

struct Saver::Flight {
  SaveMoment moment;
  std::filesystem::path directory;
  std::vector<Region> regions;
  std::span<const std::byte> staged;  // if empty, regions are written from their own memory
  std::atomic<bool> ended{false};
  std::string pieces;   // once it has ended, unless it failed
  std::string failure;  // once it has ended
  double processor_seconds = 0;
  std::thread thread;
  std::optional<WorkingThread> writer;  // measures the progress of `thread`

  ~Flight() {
    if (thread.joinable()) thread.join();
  }
  void write(std::int64_t rank) {
    try {
      pieces = write_rank_file(directory, rank, std::move(regions), staged);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    processor_seconds = processor_seconds_of_thread();
    ended = true;
  }
};

Saver::Saver(Input input, BeforeComplete before_complete)
    : input_(std::move(input)),
      before_complete_(std::move(before_complete)),
      folder_(input_.run),
      progress_(static_cast<std::size_t>(input_.everyone.size())) {
  if (!saves_in_background(input_.config.checkpoint)) return;
  const Plan& plan = input_.plan;
  const std::int64_t rank = input_.everyone.rank();
  make_staging(saved_bytes(saved_parts(plan, input_.store.ownership(), rank), input_.store.table(),
                           input_.config.optimizer));
}

Saver::~Saver() { end_removal(); }

void Saver::save(const SaveMoment& moment, bool in_background) {
  finish();
  const std::int64_t rank = input_.everyone.rank();
  flight_ = std::make_unique<Flight>();
  flight_->moment = moment;
  flight_->directory = folder_.partial(moment.state.step, input_.fence.session);
  flight_->regions = saved_regions(input_.plan, input_.store, input_.config.optimizer, rank);
  std::error_code failure;  // ignored: without the directory, creating the file fails
  std::filesystem::create_directories(flight_->directory, failure);
  const bool on_device = input_.plan.device != DeviceKind::cpu;
  if (in_background || on_device) stage();
  flight_->thread = std::thread([flight = flight_.get(), rank, in_background] {
    if (in_background) yield_to_steps();
    flight->write(rank);
  });
  flight_->writer.emplace(input_.deadline_seconds, flight_->thread.native_handle());
  if (!in_background) finish();
}

void Saver::make_staging(std::int64_t bytes) {
  if (bytes == 0) return;
  staging_ = Slab(DeviceKind::cpu, {{"bytes", Shape{bytes}, DType::u8}});
  // Writes the memory now, so that the system provides it before the first save.
  std::memset(staging_.bytes().data, 0, static_cast<std::size_t>(bytes));
}

void Saver::stage() {
  struct Block {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
    std::uint64_t* hash;
  };
  std::int64_t bytes = 0;
  for (const Region& region : flight_->regions) bytes += region.memory.bytes();
  if (!staging_.contains("bytes") || staging_.at("bytes").bytes() < bytes) make_staging(bytes);
  if (bytes == 0) return;
  auto* to = static_cast<std::byte*>(staging_.at("bytes").data);
  flight_->staged = {to, static_cast<std::size_t>(bytes)};
  std::vector<Block> blocks;
  for (Region& region : flight_->regions) {
    const Tensor staged{to, region.memory.shape, region.memory.dtype, DeviceKind::cpu};
    const bool there = region.memory.device != DeviceKind::cpu;
    if (there) copy_now(staged, region.memory);
    const auto* from = static_cast<const std::byte*>(there ? staged.data : region.memory.data);
    region.memory = staged;
    const std::int64_t size = region.memory.bytes();
    region.hashes.resize(static_cast<std::size_t>((size + hashed_bytes - 1) / hashed_bytes));
    for (std::size_t i = 0; i < region.hashes.size(); ++i) {
      const std::int64_t begin = static_cast<std::int64_t>(i) * hashed_bytes;
      const auto length = static_cast<std::size_t>(std::min(hashed_bytes, size - begin));
      blocks.push_back({to + begin, from + begin, length, &region.hashes[i]});
    }
    to += size;
  }
  parallel_for(std::ssize(blocks), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const Block& block = at(blocks, i);
      const std::span source{block.from, block.bytes};
      *block.hash = block.from == block.to ? hash_bytes(source) : copy_and_hash(source, block.to);
    }
  });
}

bool Saver::all_ended() {
  double mine = flight_->writer->used_seconds();
  if (flight_->ended) mine = flight_->failure.empty() ? written_state : failed_state;
  progress_ = gather_values(input_.everyone, mine);
  for (const double state : progress_) {
    if (state >= 0) return false;
  }
  return true;
}

void Saver::poll() {
  if (flight_ && all_ended()) end_flight();
}

void Saver::finish() {
  if (!flight_) return;
  std::vector<double> before;
  WaitLimit patience(input_.deadline_seconds);
  auto noticed = Clock::now();
  while (!all_ended()) {
    const auto now = Clock::now();
    if (progress_ != before) patience = WaitLimit(input_.deadline_seconds);
    before = progress_;
    std::string waiting;
    for (std::size_t rank = 0; rank < progress_.size(); ++rank) {
      if (progress_[rank] < 0) continue;
      waiting += (waiting.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (now - noticed > notice_interval && input_.everyone.rank() == 0) {
      noticed = now;
      log_info("checkpoint: waiting for the files of rank(s) " + waiting);
    }
    if (patience.over()) give_up(waiting, patience.waited());
    std::this_thread::sleep_for(look_interval);
  }
  end_flight();
}

/// Ends the process if its thread still waits for the disk, since a thread cannot be ended alone.
void Saver::give_up(const std::string& ranks, double idle) const {
  const std::string text = "checkpoint: rank(s) " + ranks + " have written nothing for " +
                           format_seconds(idle) + " (parallel.deadline_seconds) in " +
                           flight_->directory.string();
  if (flight_->ended) throw Error(ExitCode::io, text);
  log_error(text + "; the disk does not answer this rank, and its process ends");
  end_suddenly(ExitCode::io);
}

void Saver::end_flight() {
  const bool first = input_.everyone.rank() == 0;
  const std::int64_t step = flight_->moment.state.step;
  bool good = true;
  for (const double state : progress_) good = good && state == written_state;
  if (!flight_->failure.empty()) log_error("checkpoint: " + flight_->failure);
  const std::vector<std::string> pieces =
      gather_bytes(input_.everyone, good ? flight_->pieces : "", 0);
  while_others_wait(input_.everyone, "checkpoint", first, [&] {
    good = good && try_to_publish(pieces);
    std::error_code failure;
    if (!good) std::filesystem::remove_all(flight_->directory, failure);
  });
  good = gather_values(input_.everyone, good ? 1.0 : 0.0).front() > 0;
  if (good) {
    saved_step_ = step;
  } else {
    ++failures_;
    if (first) {
      log_error("checkpoint: step " + std::to_string(step) +
                " was not saved; its files were removed");
    }
  }
  writer_seconds_ += flight_->processor_seconds;
  flight_.reset();
}

/// Runs on rank 0.
bool Saver::try_to_publish(const std::vector<std::string>& pieces) {
  try {
    if (before_complete_) before_complete_();
    publish(pieces);
    prune();
    return true;
  } catch (const Error& error) {
    if (error.code() == ExitCode::taken) throw;
    log_error(std::string("checkpoint: ") + error.what());
  } catch (const std::exception& error) {
    log_error(std::string("checkpoint: ") + error.what());
  }
  return false;
}

/// Runs on rank 0.
void Saver::publish(const std::vector<std::string>& pieces) {
  const std::string strategy = write_layouts(
      make_layout_file(input_.plan, input_.config.parallel, &input_.config.optimizer), true);
  Manifest manifest{.state = flight_->moment.state,
                    .loss = flight_->moment.loss,
                    .val_loss = flight_->moment.val_loss,
                    .session = input_.fence.session,
                    .steps = input_.config.train.steps,
                    .length = input_.plan.length,
                    .data = flight_->moment.data,
                    .optimizer = std::string(word_of(input_.config.optimizer.type)),
                    .plan_hash = input_.plan.hash,
                    .layout = layout_of(input_.plan, input_.config),
                    .config_hash = hash_bytes(input_.config_text),
                    .strategy_hash = hash_bytes(strategy),
                    .files = {},
                    .tensors = {}};
  for (const std::string& text : pieces) add_pieces(manifest, text);
  const std::filesystem::path& directory = flight_->directory;
  write_whole_file(directory / saved_config_name, input_.config_text);
  write_whole_file(directory / saved_strategy_name, strategy);
  const std::string& products = flight_->moment.product_algorithms;
  if (!products.empty()) write_whole_file(directory / saved_products_name, products);
  write_whole_file(directory / manifest_name, manifest_text(manifest));
  saved_path_ = folder_.publish(manifest.state.step, input_.fence);
}

/// Runs on rank 0. A checkpoint that cannot be removed costs disk space, but does not end the run.
void Saver::prune() {
  try {
    retire_old();
  } catch (const Error& error) {
    if (error.code() == ExitCode::taken) throw;
    log_warning(std::string("checkpoint: older ones stay: ") + error.what());
  } catch (const std::exception& error) {
    log_warning(std::string("checkpoint: older ones stay: ") + error.what());
  }
}

/// Whether validation losses can be compared to find the best checkpoint: only on the same data.
bool Saver::is_comparable(const Manifest& earlier) const {
  const auto& now = flight_->moment.data.validation;
  if (!now || !earlier.data || !earlier.data->validation) return true;
  return earlier.data->validation->identity == now->identity;
}

void Saver::retire_old() {
  const CheckpointConfig& config = input_.config.checkpoint;
  std::vector<CheckpointFolder::Entry> kept = folder_.complete();
  for (CheckpointFolder::Entry& one : kept) {
    try {
      if (config.keep_best) {
        const Manifest manifest = read_manifest(one.path);
        if (is_comparable(manifest)) one.val_loss = manifest.val_loss;
      }
    } catch (const Error& error) {
      if (error.code() == ExitCode::io) throw;  // a damaged checkpoint is never the best
    }
  }
  end_removal();
  std::vector<std::filesystem::path> retired;
  for (const std::filesystem::path& path : to_remove(config, kept)) {
    try {
      retired.push_back(CheckpointFolder::retire(path, input_.fence));
    } catch (const Error& error) {
      if (error.code() == ExitCode::taken) throw;
      log_warning(std::string("checkpoint: ") + error.what());
    }
  }
  if (retired.empty()) return;
  removal_ = std::thread([this, retired = std::move(retired)] {
    yield_to_steps();
    for (const auto& directory : retired) {
      const std::string reason = remove_directory(directory);
      if (!reason.empty()) not_removed_.push_back(reason);
    }
    removal_seconds_ = processor_seconds_of_thread();
  });
}

void Saver::end_removal() {
  if (removal_.joinable()) {
    removal_.join();
    writer_seconds_ += removal_seconds_;
  }
  for (const std::string& reason : not_removed_) log_warning("checkpoint: " + reason);
  not_removed_.clear();
}

}  // namespace trainctl
