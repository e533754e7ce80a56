// Runs that go on with other lengths, blends, seeds and files, against a ledger that is kept by
// hand: which labels were read, and which come next.
#include "run/data/corpus.h"

#include <random>

#include "base/error.h"
#include "catch.h"
#include "data/dataset.h"
#include "data/scratch_folder.h"
#include "data/token_file.h"
#include "thorough.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

constexpr std::int32_t apart = 10'000;  // between the tokens of two sources

/// Source i has the tokens i * apart, i * apart + 1, ..., in documents of these lengths.
void write_source(const ScratchFolder& folder, const std::string& name, std::int32_t base,
                  const std::vector<std::int32_t>& documents) {
  std::vector<std::int32_t> tokens;
  for (const std::int32_t length : documents) {
    for (std::int32_t i = 0; i < length; ++i) {
      tokens.push_back(base + static_cast<std::int32_t>(tokens.size()));
    }
  }
  folder.write(name + ".bin", packed(tokens));
  folder.write(name + ".idx", megatron_index(4, 4, documents));
}

struct Session {
  DataConfig data;
  std::int64_t seq_length = 16;
  std::uint64_t seed = 7;
};

using Labels = std::vector<std::int32_t>;

/// The labels of a sample, which alone count.
Labels labels_of(const Dataset::Sample& sample) {
  return {sample.labels.begin(), sample.labels.begin() + sample.scored};
}

/// The rows of one epoch of a source in the order in which a new run reads them.
std::vector<Labels> rows_of_epoch(const Session& session, std::size_t source, std::int64_t epoch) {
  Session even = session;
  for (DataSource& one : even.data.train) one.weight = 1;
  const Dataset data = open_train_data(even.data, session.seq_length, session.seed);
  Session alone = session;
  alone.data.train = {session.data.train[source]};
  const std::int64_t windows =
      open_train_data(alone.data, session.seq_length, session.seed).windows();
  std::vector<Labels> rows;
  Dataset::Sample sample;
  std::int64_t seen = 0;
  for (std::int64_t i = 0; std::ssize(rows) < windows; ++i) {
    data.train_sample(i, sample);
    if (static_cast<std::size_t>(sample.tokens[0] / apart) != source) continue;
    if (seen++ >= epoch * windows) rows.push_back(labels_of(sample));
  }
  return rows;
}

/// The state of one source: the epoch in progress, and its labels that were not read, in order.
/// Rows of documents stay apart; others are one row.
class WindowLedger {
 public:
  WindowLedger(bool packing, std::size_t source) : packing_(packing), source_(source) {}

  void begin_session(const Session& session) {
    session_ = session;
    drop_rest();
  }
  Labels next() {
    if (unread_.empty()) {
      for (const Labels& row : rows_of_epoch(session_, source_, epoch_++)) {
        if (!packing_ || unread_.empty()) {
          unread_.push_back(row);
        } else {
          unread_.front().insert(unread_.front().end(), row.begin(), row.end());
        }
      }
    }
    Labels& row = unread_.front();
    const std::int64_t count = std::min<std::int64_t>(session_.seq_length, std::ssize(row));
    const Labels taken(row.begin(), row.begin() + count);
    row.erase(row.begin(), row.begin() + count);
    drop_rest();
    return taken;
  }
  /// The epoch in progress is not gone on with.
  void begin_anew() { unread_.clear(); }

 private:
  void drop_rest() {
    const std::int64_t least = packing_ ? session_.seq_length : 1;
    if (!unread_.empty() && std::ssize(unread_.front()) < least) unread_.erase(unread_.begin());
  }

  bool packing_;
  std::size_t source_;
  Session session_;
  std::int64_t epoch_ = 0;  // after the one in progress
  std::vector<Labels> unread_;
};

std::vector<SourceIdentity> identities(const Session& session) {
  return identify_sources(session.data);
}

/// A run in sessions, as a checkpoint connects them.
struct Run {
  std::optional<SavedData> saved;
  std::int64_t samples = 0;
  DataPlace place;

  Dataset open(const Session& session) {
    Dataset data = open_train_data(session.data, session.seq_length, session.seed);
    if (!saved) return data;
    place = go_on_in_data(*saved, samples, session.data, identities(session), session.seq_length,
                          session.seed);
    data.go_on(place.position);
    return data;
  }
  void save(const Session& session, const Dataset& data) {
    saved = saved_data(session.data, identities(session), data.position(samples), place.absent);
  }
};

/// Reads `count` samples and compares each with the ledgers.
void read_and_compare(Run& run, const Session& session, std::vector<WindowLedger>& ledgers,
                      std::int64_t count) {
  const Dataset data = run.open(session);
  for (WindowLedger& ledger : ledgers) ledger.begin_session(session);
  Dataset::Sample sample;
  std::vector<double> taken(ledgers.size(), 0);
  double weights = 0;
  for (const DataSource& source : session.data.train) weights += source.weight;
  const bool same_pattern = run.place.position.pattern > 0;
  for (std::int64_t i = 1; i <= count; ++i) {
    data.train_sample(run.samples++, sample);
    const auto source = static_cast<std::size_t>(sample.labels[0] / apart);
    REQUIRE(labels_of(sample) == ledgers[source].next());
    taken[source] += 1;
    for (std::size_t one = 0; one < taken.size() && !same_pattern; ++one) {
      const double share = session.data.train[one].weight / weights * static_cast<double>(i);
      REQUIRE(std::abs(taken[one] - share) < 1);
    }
  }
  run.save(session, data);
}

Session blend(const ScratchFolder& folder, bool packing, bool shuffle) {
  Session session;
  session.data.train = {{(folder / "a").string(), 1}, {(folder / "b").string(), 1}};
  session.data.packing = packing;
  session.data.shuffle = shuffle;
  return session;
}

}  // namespace

TEST_CASE("sessions of other lengths, weights and seeds read what comes next of each source") {
  const ScratchFolder folder;
  write_source(folder, "a", 0, {30, 2, 77, 40, 1, 150, 33});
  write_source(folder, "b", apart, {500, 21, 18, 70});
  for (const bool packing : {true, false}) {
    for (const bool shuffle : {true, false}) {
      CAPTURE(packing, shuffle);
      std::mt19937 random(packing ? 3 : 4);
      const auto pick = [&](std::initializer_list<int> values) {
        return values.begin()[random() % values.size()];
      };
      for (int run_number = 0; run_number < (tries(6, 100)); ++run_number) {
        Run run;
        Session session = blend(folder, packing, shuffle);
        std::vector<WindowLedger> ledgers{{packing, 0}, {packing, 1}};
        for (int number = 0; number < 8; ++number) {
          session.seq_length = pick({16, 16, 8, 32, 24, 5});
          session.seed = static_cast<std::uint64_t>(pick({7, 7, 8}));
          session.data.train[1].weight = pick({1, 1, 3});
          CAPTURE(run_number, number, session.seq_length, session.data.train[1].weight);
          read_and_compare(run, session, ledgers, pick({1, 7, 20, 90}));
        }
      }
    }
  }
}

TEST_CASE("an unchanged run continues as if it had not stopped") {
  const ScratchFolder folder;
  write_source(folder, "a", 0, {300});
  write_source(folder, "b", apart, {500});
  Session session = blend(folder, true, true);
  session.data.train[1].weight = 2.7;
  const Dataset whole = open_train_data(session.data, 16, 7);
  Run run;
  Dataset::Sample expected;
  Dataset::Sample found;
  for (int number = 0; number < 20; ++number) {
    const Dataset part = run.open(session);
    for (int i = 0; i < 13; ++i) {
      whole.train_sample(run.samples, expected);
      part.train_sample(run.samples++, found);
      REQUIRE(found.tokens == expected.tokens);
      REQUIRE(found.document == expected.document);
    }
    run.save(session, part);
    CHECK(run.saved->pattern == run.samples);
  }
}

TEST_CASE("a row that is joined from windows has each input's own label and tells them apart") {
  const ScratchFolder folder;
  write_source(folder, "a", 0, {400});
  Session session;
  session.data.train = {{(folder / "a").string(), 1}};
  Run run;
  Dataset::Sample sample;
  {
    const Dataset data = run.open(session);
    for (int i = 0; i < 3; ++i) data.train_sample(run.samples++, sample);
    run.save(session, data);
  }
  session.seq_length = 40;
  const Dataset data = run.open(session);
  bool joined = false;
  for (int i = 0; i < 8; ++i) {
    data.train_sample(run.samples++, sample);
    for (std::size_t at = 0; at < 40; ++at) {
      REQUIRE(sample.labels[at] == sample.tokens[at] + 1);
      if (at == 0) continue;
      const bool touches = sample.tokens[at] == sample.tokens[at - 1] + 1;
      REQUIRE(touches == (sample.document[at] == sample.document[at - 1]));
      joined = joined || !touches;
    }
  }
  CHECK(joined);
  // 24 windows of 16, 3 of them read: 8 rows of 40, and 16 labels that are left out.
  CHECK(data.rest(0) == 16);
  CHECK(data.windows_behind() == 9 - 8);
}

TEST_CASE("a source that has changed is refused, or begins a new epoch") {
  const ScratchFolder folder;
  write_source(folder, "a", 0, {300});
  write_source(folder, "b", apart, {500});
  Session session = blend(folder, true, true);
  Run run;
  std::vector<WindowLedger> ledgers{{true, 0}, {true, 1}};
  read_and_compare(run, session, ledgers, 10);
  const auto refusal = [&] {
    try {
      run.open(session);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::bad_data);
      return std::string(error.what());
    }
    return std::string();
  };
  // Moved, in another order and next to another file: it is the same data.
  std::filesystem::create_directory(folder / "there");
  for (const char* end : {".bin", ".idx"}) {
    std::filesystem::rename(folder / (std::string("b") + end),
                            folder / (std::string("there/c") + end));
  }
  session.data.train[1].path = (folder / "there/c").string();
  read_and_compare(run, session, ledgers, 10);
  session.data.train[1].path = (folder / "b").string();

  for (const std::int32_t length : {600, 400, 500}) {  // grown, shrunk, replaced
    write_source(folder, "b", apart + (length == 500 ? 1 : 0), {length});
    CAPTURE(length);
    session.data.changed = "refuse";
    run.saved->sources[1].path = storable_name(session.data.train[1].path);
    const std::string why = refusal();
    CHECK_THAT(why, Catch::Contains("data.train: " + (folder / "b").string() +
                                    " is not what the checkpoint's run read: "));
    CHECK_THAT(why, Catch::Contains("set data.changed=allow to begin a new epoch of it"));
    session.data.changed = "allow";
    ledgers[1].begin_anew();
    read_and_compare(run, session, ledgers, 20);
    CHECK(run.place.notes.size() == 1);
  }
  // The fraction that is held out decides the windows of every source.
  session.data.validation.fraction = 0.1;
  for (WindowLedger& ledger : ledgers) ledger.begin_anew();
  read_and_compare(run, session, ledgers, 20);
  CHECK(run.place.notes.size() == 1);
}

TEST_CASE("sources come and go, and one that comes back continues") {
  const ScratchFolder folder;
  write_source(folder, "a", 0, {300});
  write_source(folder, "b", apart, {500});
  const Session both = blend(folder, true, false);
  Session only_b = both;
  only_b.data.train.erase(only_b.data.train.begin());
  Run run;
  Dataset::Sample sample;
  const auto read = [&](const Session& session, int count) {
    const Dataset data = run.open(session);
    std::vector<std::int32_t> first;
    for (int i = 0; i < count; ++i) {
      data.train_sample(run.samples++, sample);
      first.push_back(sample.tokens[0]);
    }
    run.save(session, data);
    return first;
  };
  CHECK(read(both, 4) == std::vector<std::int32_t>{0, apart, 16, apart + 16});
  CHECK(read(only_b, 2) == std::vector<std::int32_t>{apart + 32, apart + 48});
  CHECK(run.place.absent.size() == 1);
  CHECK(read(both, 2) == std::vector<std::int32_t>{32, apart + 64});
  CHECK(run.place.absent.empty());
}

TEST_CASE("a source is known by its size, header, index and 64 blocks") {
  const ScratchFolder folder;
  std::string tokens(1 << 20, 'a');
  const auto identity = [&] {
    folder.write("t.bin", tokens);
    return identity_of(TokenFile::open(folder / "t.bin"));
  };
  const SourceIdentity before = identity();
  CHECK(before == identity());
  CHECK(before.bytes == 1 << 20);
  for (const std::size_t place : {std::size_t{0}, std::size_t{1023}, tokens.size() - 1}) {
    tokens[place] = 'b';
    CHECK_FALSE(identity() == before);
    tokens[place] = 'a';
  }
  write_source(folder, "m", 0, {10, 20});
  const SourceIdentity two = identity_of(TokenFile::open(folder / "m"));
  write_source(folder, "m", 0, {20, 10});
  CHECK_FALSE(identity_of(TokenFile::open(folder / "m")) == two);
  CHECK(storable_name("a b/ä\n%") == "a b/%c3%a4%0a%25");
}
