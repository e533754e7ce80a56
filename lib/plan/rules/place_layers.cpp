#include "plan/rules/place_layers.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "base/at.h"
#include "base/text.h"
#include "plan/model/block.h"
#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

constexpr std::size_t max_letters = 1'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  ParsedList<std::string> read() {
    const std::string letters = sequence(0);
    if (error_.empty() && at_ < text_.size()) fail("unmatched ')'");
    ParsedList<std::string> layout;
    layout.error = error_;
    if (!error_.empty()) return layout;
    layout.values.emplace_back();
    for (const char letter : letters) {
      if (letter == '|') {
        layout.values.emplace_back();
      } else {
        layout.values.back() += letter;
      }
    }
    return layout;
  }

 private:
  void fail(const std::string& what) {
    if (error_.empty()) error_ = formatted("{} at character {}", what, at_ + 1);
  }
  void skip_cosmetics() {
    while (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ' ')) ++at_;
  }

  /// Reads up to the end of the text or, inside parentheses, up to the closing one.
  std::string sequence(int depth) {
    std::string letters;
    for (skip_cosmetics(); at_ < text_.size() && error_.empty(); skip_cosmetics()) {
      if (text_[at_] == ')') break;
      const std::string item = text_[at_] == '(' ? parenthesis(depth) : letter();
      const std::size_t count = error_.empty() ? repetition() : 0;
      if (letters.size() + item.size() * count > max_letters) {
        fail("more than 1,000,000 letters");
        break;
      }
      for (std::size_t i = 0; i < count; ++i) letters += item;
    }
    return letters;
  }

  std::string parenthesis(int depth) {
    if (depth >= 64) {
      fail("more than 64 nested parentheses");
      return {};
    }
    ++at_;
    std::string inside = sequence(depth + 1);
    if (!error_.empty()) return {};
    if (at_ == text_.size()) {
      fail("missing ')'");
      return {};
    }
    ++at_;
    return inside;
  }

  std::string letter() {
    const char c = text_[at_];
    if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
      const bool shown = c > ' ' && c < 127;
      fail(formatted("expected E, t, m, L, |, *n, ( or ), found '{}'", shown ? c : '?'));
      return {};
    }
    ++at_;
    return std::string(1, c);
  }

  /// Reads the number of "*3" after a letter or a parenthesis; 1 without "*".
  std::size_t repetition() {
    skip_cosmetics();
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    ++at_;
    skip_cosmetics();
    std::size_t count = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && is_digit(text_[at_]) && count <= max_letters; ++at_) {
      count = count * 10 + static_cast<std::size_t>(text_[at_] - '0');
    }
    if (at_ == begin) fail("expected a number after '*'");
    if (error_.empty() && count == 0) fail("'*0' must be at least '*1'");
    if (count > max_letters) fail("more than 1,000,000 letters");
    return count;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
};

}  // namespace

ParsedList<std::string> parse_stage_layout(std::string_view text) { return Reader(text).read(); }

namespace {

/// Gives each part layers while their cost is at most `most` and enough layers remain for later
/// parts. Empty if the layers do not fit.
std::vector<std::int64_t> deal(const std::vector<double>& costs, double last, std::int64_t parts,
                               double most) {
  const auto layers = std::ssize(costs);
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t behind = parts - 1 - part;
    double cost = behind == 0 ? last : 0;
    std::int64_t count = 0;
    while (next < layers) {
      const bool must = count == 0 && layers - next > behind;
      const bool may = layers - next > behind || layers < parts;
      const double more = cost + at(costs, next);
      if (must && more > most) return {};
      if (!may || more > most) break;
      cost = more;
      ++count;
      ++next;
    }
    if (cost > most) return {};
    counts.push_back(count);
  }
  return next == layers ? counts : std::vector<std::int64_t>{};
}

}  // namespace

std::vector<std::int64_t> balanced_counts(const std::vector<double>& costs, double last,
                                          std::int64_t parts) {
  double enough = 2 * std::accumulate(costs.begin(), costs.end(), last);
  double least = 0;
  std::vector<std::int64_t> best = deal(costs, last, parts, enough);
  constexpr int halvings = 100;  // more than the bits of a double
  for (int i = 0; i < halvings; ++i) {
    const double middle = least + (enough - least) / 2;
    std::vector<std::int64_t> counts = deal(costs, last, parts, middle);
    (counts.empty() ? least : enough) = middle;
    if (!counts.empty()) best = std::move(counts);
  }
  return best;
}

namespace {

/// Layers of every chunk in model order: [chunk * stages + stage]. Nullopt after an error.
using Counts = std::optional<std::vector<std::int64_t>>;

std::string key(const char* name) { return std::string("parallel.pipeline.") + name; }

struct Cut {
  std::int64_t layers = 0, stages = 1, chunks = 1;
  const PipelineConfig& pipeline;
  bool compiled = false;  // the mode uses MindSpore's placement
  Check& check;

  std::int64_t places() const { return stages * chunks; }
  ChunkPlaces route() const {
    return {static_cast<int>(stages), static_cast<int>(chunks),
            traits_of(pipeline.scheduler).route};
  }
  bool counts_ends() const { return pipeline.account_for_embedding || pipeline.account_for_loss; }
  bool gives_ends() const { return pipeline.first_stage_layers || pipeline.last_stage_layers; }
  std::string first_or_last() const {
    return key(pipeline.first_stage_layers ? "first_stage_layers" : "last_stage_layers");
  }
};

/// Reports an error; returns no counts.
Counts refuse(const Cut& cut, const char* code, const std::string& path, const std::string& message,
              const std::string& help) {
  cut.check.error(code, path, message, help);
  return std::nullopt;
}

/// Megatron's even division; embedding and loss may count as layers.
Counts cut_evenly(const Cut& cut) {
  const std::int64_t first = cut.pipeline.account_for_embedding ? 1 : 0;
  const std::int64_t last = cut.pipeline.account_for_loss ? 1 : 0;
  const std::int64_t all = cut.layers + first + last;
  std::string what = formatted("{} layers", cut.layers);
  if (first + last > 0) {
    what += formatted("{}{} = {}", first ? " + embedding" : "", last ? " + loss" : "", all);
  }
  if (all % cut.stages != 0) {
    return refuse(cut, "stage-layers", "parallel.pipeline_stages",
                  indivisible(what, named("pipeline_stages", cut.stages)),
                  formatted("set pipeline_stages to {}, or make the stages unequal with "
                            "pipeline.first_stage_layers, last_stage_layers or layout",
                            divisors_near(all, cut.stages)));
  }
  const std::int64_t each = all / cut.stages;
  if (each % cut.chunks != 0) {
    return refuse(
        cut, "chunk-layers", "parallel.virtual_pipeline_stages",
        indivisible(formatted("the {} layers per stage ({} / {} stages)", each, what, cut.stages),
                    named("virtual_pipeline_stages", cut.chunks)),
        formatted(
            "set virtual_pipeline_stages to {}, or make the chunks unequal with pipeline.layout",
            divisors_near(each, cut.chunks)));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(cut.places()), each / cut.chunks);
  counts.front() -= first;
  counts.back() -= last;
  return counts;
}

bool fits_chunks(const Cut& cut, const std::string& path, const std::string& what,
                 std::int64_t count) {
  if (count % cut.chunks == 0) return true;
  cut.check.error("chunk-layers", path,
                  indivisible(what, named("virtual_pipeline_stages", cut.chunks)),
                  formatted("make it {}, or set virtual_pipeline_stages to {}",
                            multiples_near(cut.chunks, count), divisors_near(count, cut.chunks)));
  return false;
}

/// Uses the given counts for the first and the last stage, and divides the rest evenly. With two
/// stages and both counts given, these must add up to the model's layers.
Counts cut_by_ends(const Cut& cut) {
  const auto& first = cut.pipeline.first_stage_layers;
  const auto& last = cut.pipeline.last_stage_layers;
  const std::int64_t between = cut.stages - (first ? 1 : 0) - (last ? 1 : 0);
  const std::int64_t rest = cut.layers - first.value_or(0) - last.value_or(0);
  std::string what = formatted("{} layers", cut.layers);
  if (first) what += " - " + named("first_stage_layers", *first);
  if (last) what += " - " + named("last_stage_layers", *last);
  what += formatted(" = {}", rest);
  const bool fits = between == 0 ? rest == 0 : rest > 0 && rest % between == 0;
  if (!fits) {
    const std::int64_t given = first ? *first : *last;
    const std::int64_t other = first ? last.value_or(0) : 0;
    const std::int64_t open = cut.layers - other;  // layers of the stage and those between
    // Suggests the nearest counts that leave the stages between equal numbers of layers.
    const std::int64_t step = std::max<std::int64_t>(1, between);
    const std::int64_t most = between == 0 ? open : open - step;
    const std::int64_t near = std::clamp<std::int64_t>(given, 1, std::max<std::int64_t>(1, most));
    std::string help;
    if (between == 0 && open > 0) help = formatted("{}", open);
    if (between > 0 && most > 0) {
      const std::int64_t up = near + ((open - near) % step);
      if (up - step > 0) help = formatted("{}", up - step);
      if (up <= most) help += formatted("{}{}", help.empty() ? "" : " or ", up);
    }
    if (!help.empty()) {
      help = formatted("set {}_stage_layers to {}, or ", first ? "first" : "last", help);
    }
    return refuse(cut, "stage-layers", cut.first_or_last(),
                  between == 0 ? what + " layers are left, but there is no stage between the two"
                  : rest > 0   ? indivisible(what, formatted("the {} other stages", between))
                               : formatted("{} layers are left for {} other stages", what, between),
                  help + "give the layers of each stage with pipeline.layout");
  }
  const std::int64_t middle = between > 0 ? rest / between : 0;
  const auto fits_end = [&](const char* name, const std::optional<std::int64_t>& count) {
    return !count || fits_chunks(cut, key(name), named(name, *count), *count);
  };
  if (!fits_end("first_stage_layers", first) || !fits_end("last_stage_layers", last) ||
      !fits_chunks(cut, cut.first_or_last(),
                   formatted("the {} layers of each other stage ({})", middle, what), middle)) {
    return std::nullopt;
  }
  std::vector<std::int64_t> counts;
  for (std::int64_t place = 0; place < cut.places(); ++place) {
    const std::int64_t stage = cut.route().at(static_cast<int>(place)).stage;
    const bool is_first = stage == 0 && first.has_value();
    const bool is_last = stage == cut.stages - 1 && last.has_value();
    counts.push_back((is_first ? *first : is_last ? *last : middle) / cut.chunks);
  }
  return counts;
}

/// MindSpore's rule: stage(l) = min((l + offset) / d, P - 1) with d = max(L / P, 1), over the
/// places of all chunks.
Counts cut_by_formula(const Cut& cut, std::int64_t offset) {
  if (cut.layers < cut.places()) {
    return refuse(cut, "stage-layers", "parallel.pipeline_stages",
                  formatted("{} must be at least {} x {} = {}", named("num_layers", cut.layers),
                            named("pipeline_stages", cut.stages),
                            named("virtual_pipeline_stages", cut.chunks), cut.places()),
                  formatted("set pipeline_stages to {}, or parallel_mode to hybrid_parallel and "
                            "use pipeline.layout",
                            divisors_near(cut.layers, cut.stages / cut.chunks)));
  }
  if (offset < 0) {
    return refuse(
        cut, "pipeline-offset", key("offset"),
        formatted("a single number shifts every layer, so {} must be at least 0",
                  named("offset", offset)),
        formatted("set offset to 0, or give one number for each of the {} chunks", cut.places()));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(cut.places()), 0);
  const std::int64_t share = cut.layers / cut.places();
  for (std::int64_t layer = 0; layer < cut.layers; ++layer) {
    ++at(counts, std::min((layer + offset) / share, cut.places() - 1));
  }
  return counts;
}

/// MindFormers' rule: L / (P V) layers each, plus the stage's offset. With chunks, the offsets of
/// all stages for chunk 0 come first, then those for chunk 1, and so on.
Counts cut_by_offset(const Cut& cut) {
  const IntList& offset = *cut.pipeline.offset;
  if (offset.size() == 1) return cut_by_formula(cut, offset.front());
  const std::int64_t share = cut.layers / cut.places();
  const auto given = static_cast<std::int64_t>(offset.size());
  if (given != cut.places()) {
    return refuse(
        cut, "pipeline-offset", key("offset"),
        formatted("expected {} ({} stages x {}), found {}", counted(cut.places(), "number"),
                  cut.stages, counted(cut.chunks, "chunk"), given),
        formatted("give {} numbers that add up to {}, or leave offset out", cut.places(),
                  cut.layers - share * cut.places()));
  }
  std::vector<std::int64_t> counts;
  std::int64_t sum = 0;
  for (const std::int64_t more : offset) {
    counts.push_back(share + more);
    sum += counts.back();
  }
  const auto least = std::min_element(counts.begin(), counts.end());
  const std::string rule = formatted("{} layers / {} = {}", cut.layers, cut.places(), share);
  if (*least < 0) {
    return refuse(cut, "pipeline-offset", key("offset"),
                  formatted("{}, so offset {} gives {} layers", rule, *least - share, *least),
                  formatted("make each number at least {}", -share));
  }
  if (sum != cut.layers) {
    return refuse(cut, "pipeline-offset", key("offset"),
                  formatted("{} each, plus the offsets, must give {} layers, found {}", rule,
                            cut.layers, sum),
                  formatted("choose offsets that add up to {}", cut.layers - share * cut.places()));
  }
  return counts;
}

/// The number of occurrences of a letter in all stages.
std::int64_t count_of(const ParsedList<std::string>& layout, char letter) {
  std::int64_t count = 0;
  for (const std::string& stage : layout.values) {
    count += std::count(stage.begin(), stage.end(), letter);
  }
  return count;
}

/// A message about a mistake in a well-formed stage text; empty if there is none.
std::string layout_mistake(const Cut& cut, const ParsedList<std::string>& layout) {
  const auto stages = static_cast<std::int64_t>(layout.values.size());
  if (!layout.values.front().starts_with('E')) return "must start with E, the embedding";
  if (!layout.values.back().ends_with('L')) return "must end with L, the loss";
  for (const char letter : {'E', 'L'}) {
    const std::int64_t count = count_of(layout, letter);
    if (count != 1) return formatted("must contain {} once, found {}", letter, count);
  }
  const std::int64_t layers = count_of(layout, 't');
  if (layers != cut.layers) {
    return formatted("must contain t once for each of the {}, found {}",
                     counted(cut.layers, "layer"), layers);
  }
  if (stages % cut.stages != 0) {
    return indivisible(named("the number of stages in the text", stages),
                       named("pipeline_stages", cut.stages));
  }
  return {};
}

/// An example text with layers as even as possible, for a message: "Et*3|t*4|t*4|t*3L".
std::string sample_layout(std::int64_t layers, std::int64_t places) {
  std::string text = "E";
  for (std::int64_t place = 0; place < places; ++place) {
    const std::int64_t count = layers / places + (place < layers % places ? 1 : 0);
    if (place > 0) text += "|";
    if (count > 0) text += count == 1 ? "t" : formatted("t*{}", count);
  }
  return text + "L";
}

/// Also sets `chunks` from the number of stages in the text.
Counts cut_by_layout(Cut& cut) {
  const ParsedList<std::string> layout = parse_stage_layout(*cut.pipeline.layout);
  const std::string path = key("layout");
  const std::string help =
      cut.places() <= 16 ? formatted("for example \"{}\"", sample_layout(cut.layers, cut.places()))
                         : formatted("for 6 layers on 3 stages it is \"{}\"", sample_layout(6, 3));
  if (!layout.error.empty()) return refuse(cut, "layout-syntax", path, layout.error, help);
  if (count_of(layout, 'm') > 0) {
    return refuse(cut, "not-built", path, "not built yet: m, multi-token prediction",
                  "use the letters E, t, L and |");
  }
  const std::string mistake = layout_mistake(cut, layout);
  if (!mistake.empty()) return refuse(cut, "layout-stages", path, mistake, help);
  const auto stages = static_cast<std::int64_t>(layout.values.size());
  const std::int64_t chunks = stages / cut.stages;
  if (cut.chunks > 1 && chunks != cut.chunks) {
    return refuse(
        cut, "layout-chunks", path,
        formatted("{} / {} = {}, but virtual_pipeline_stages is {}", counted(stages, "stage"),
                  named("pipeline_stages", cut.stages), counted(chunks, "chunk"), cut.chunks),
        formatted("set virtual_pipeline_stages to {} or leave it out, or write {} stages", chunks,
                  cut.places()));
  }
  const ScheduleTraits& traits = traits_of(cut.pipeline.scheduler);
  if (chunks < traits.min_chunks || chunks > traits.max_chunks) {
    return refuse(
        cut, "scheduler-chunks", path,
        formatted("scheduler {} needs {} per stage, but layout has {} / {} = {}", traits.word,
                  counted(traits.min_chunks, "chunk"), stages, cut.stages, chunks),
        formatted("write {} stages, or set scheduler to 1f1b", cut.stages * traits.min_chunks));
  }
  if (chunks > 1 && cut.pipeline.interleave == false) {
    return refuse(
        cut, "interleave-chunks", key("interleave"),
        formatted("interleave is false, but layout has {} chunks per stage", chunks),
        formatted("set interleave to true or leave it out, or write {} stages", cut.stages));
  }
  cut.chunks = chunks;
  std::vector<std::int64_t> counts;
  for (const std::string& stage : layout.values) {
    counts.push_back(std::count(stage.begin(), stage.end(), 't'));
  }
  return counts;
}

/// FLOPs of the products.
double flops_of(const Products& products) {
  double flops = 0;
  for (const Product& one : products) flops += one.flops();
  return flops;
}

/// Minimises the FLOPs of the largest chunk. Earlier chunks are filled first; a chunk is empty only
/// if there are fewer layers than chunks.
Counts cut_by_cost(const Cut& cut, const ModelShape& model) {
  const std::int64_t tokens = model.seq_length;
  std::vector<double> costs;
  for (std::int64_t layer = 0; layer < cut.layers; ++layer) {
    const LayerForm form = layer_form(model, layer);
    costs.push_back(flops_of(block_products(form, whole_shape(form, tokens))));
  }
  const double head = flops_of({{{}, tokens, model.hidden, model.padded_vocab}});
  return balanced_counts(costs, head, cut.places());
}

/// Checks that at most one rule for placing layers is given.
bool is_one_rule(const Cut& cut) {
  const PipelineConfig& pipeline = cut.pipeline;
  std::vector<std::string> asked;
  if (pipeline.layout) asked.push_back("layout");
  if (pipeline.offset) asked.push_back("offset");
  if (cut.gives_ends()) {
    asked.push_back(pipeline.first_stage_layers ? "first_stage_layers" : "last_stage_layers");
  }
  if (cut.counts_ends()) {
    asked.push_back(pipeline.account_for_embedding ? "account_for_embedding" : "account_for_loss");
  }
  if (asked.size() < 2) return true;
  cut.check.error("placement-conflict", key(asked[1].c_str()),
                  formatted("{} and {} both place the layers", asked[1], asked[0]),
                  formatted("leave out {} or {}", asked[0], asked[1]));
  return false;
}

StageMap map_of(const Cut& cut, const std::vector<std::int64_t>& counts) {
  StageMap map;
  map.stages = static_cast<int>(cut.stages);
  map.chunks = static_cast<int>(cut.chunks);
  map.route = cut.route().route;
  map.all.resize(counts.size());
  int unit = 0;
  for (std::size_t place = 0; place < counts.size(); ++place) {
    const ChunkAt home = map.places().at(static_cast<int>(place));
    const bool embedding = place == 0;
    const bool head = place + 1 == counts.size();
    const int end = unit + static_cast<int>(counts[place]) + (embedding ? 1 : 0) + (head ? 1 : 0);
    at(map.all, home.stage * map.chunks + home.chunk) = {unit, end};
    unit = end;
  }
  return map;
}

void remark_unused(const Cut& cut, const std::string& reason) {
  const PipelineConfig& pipeline = cut.pipeline;
  const auto idle = idle_in(cut.check, "parallel.pipeline.", reason);
  idle("first_stage_layers", pipeline.first_stage_layers.has_value());
  idle("last_stage_layers", pipeline.last_stage_layers.has_value());
  idle("account_for_embedding", pipeline.account_for_embedding);
  idle("account_for_loss", pipeline.account_for_loss);
  idle("layout", pipeline.layout.has_value());
  idle("offset", pipeline.offset.has_value());
}

}  // namespace

StageMap make_stage_map(const Config& config, Check& check) {
  const ParallelConfig& parallel = config.parallel;
  // The world size is irrelevant here, since it affects the mode only if no size is given.
  const ParallelMode mode = resolve_mode(parallel, 1);
  Cut cut{config.model.num_layers, 1, 1, parallel.pipeline, false, check};
  cut.compiled = mode == ParallelMode::semi_auto_parallel || mode == ParallelMode::auto_parallel;
  if (mode_splits_model(mode)) cut.stages = std::max<std::int64_t>(1, parallel.pipeline_stages);
  if (cut.stages == 1) {
    remark_unused(cut, parallel.pipeline_stages > 1 ? "this parallel_mode has no pipeline"
                                                    : "pipeline_stages is 1");
    return map_of(cut, {cut.layers});
  }
  cut.chunks = std::max<std::int64_t>(1, parallel.virtual_pipeline_stages);
  if (!is_one_rule(cut)) return {};
  const Counts counts = cut.pipeline.layout == balanced_layout
                            ? cut_by_cost(cut, model_shape(config.model, config.moe))
                        : cut.pipeline.layout                ? cut_by_layout(cut)
                        : cut.pipeline.offset                ? cut_by_offset(cut)
                        : cut.gives_ends()                   ? cut_by_ends(cut)
                        : cut.compiled && !cut.counts_ends() ? cut_by_formula(cut, 0)
                                                             : cut_evenly(cut);
  return counts ? map_of(cut, *counts) : StageMap{};
}

}  // namespace trainctl
