#include "nn/stage.h"

#include <vector>

#include "base/at.h"
#include "comm/self_group.h"
#include "nn/block.h"
#include "nn/embedding.h"
#include "nn/saved.h"
#include "nn/vocab_head.h"

namespace trainctl {

namespace {

template <class Mlp>
class DecoderStage final : public Stage {
 public:
  explicit DecoderStage(const StageInput& input)
      : alone_(self_group("vocabulary")), head_unit_(head_unit(input.model.layers)) {
    for (const UnitRange& range : input.units) {
      for (int unit = range.begin; unit < range.end; ++unit) add_unit(input, unit);
    }
    for (int slot = 0; slot < input.slots; ++slot) {
      slots_.push_back(place_slot(input, slot));
      gradients_.push_back(place_slot_gradients(input, slot));
    }
    for (int parity = 0; parity < 2; ++parity) {
      d_stream_[parity] = input.activations(0, "d_stream." + std::to_string(parity));
    }
  }

  void forward(const Pass& pass, int slot, int begin, int end) override {
    const SlotSaved& saved = at(slots_, slot);
    for (int unit = begin; unit < end; ++unit) {
      if (unit == 0) {
        embedding_.forward(pass, saved.embedding);
      } else if (unit < head_unit_) {
        blocks_[index(unit)].forward(pass, saved.blocks[index(unit)]);
      } else {
        final_norm_.forward(pass, saved.final_norm);
        head_.forward(pass, saved.head);
      }
    }
  }

  void backward_input(const Pass& pass, int slot, int begin, int end) override {
    const SlotSaved& saved = at(slots_, slot);
    const SlotGradients& gradients = at(gradients_, slot);
    for (int unit = end - 1; unit >= begin; --unit) {
      if (unit == head_unit_) {
        final_norm_.backward(pass, saved.final_norm, saved.head.dx, Tensor{}, d_stream_[unit % 2]);
      } else if (unit > 0) {
        blocks_[index(unit)].backward_input(pass, saved.blocks[index(unit)],
                                            gradients.blocks[index(unit)]);
      } else {
        embedding_.backward(pass, gradients.embedded, gradients.all_embedded);
      }
    }
  }

  void backward_weight(const Pass& pass, int slot, int begin, int end) override {
    const SlotSaved& saved = at(slots_, slot);
    const SlotGradients& gradients = at(gradients_, slot);
    for (int unit = end - 1; unit >= begin; --unit) {
      if (unit == 0 || unit == head_unit_) continue;  // finished in F (head) and B (embedding)
      blocks_[index(unit)].backward_weight(pass, saved.blocks[index(unit)],
                                           gradients.blocks[index(unit)]);
    }
  }

 private:
  void add_unit(const StageInput& input, int unit) {
    if (unit == 0) {
      embedding_ = make_embedding(input.weights, input.model, input.tp, input.split_vocabulary);
    } else if (unit == head_unit_) {
      final_norm_ =
          make_norm(input.weights, "final_norm", input.model.norm_kind, input.model.norm_epsilon);
      head_ =
          make_vocab_head(input.weights, input.model, input.tp, input.split_vocabulary, *alone_);
    } else {
      block_at_.resize(static_cast<std::size_t>(unit) + 1);
      block_at_.back() = blocks_.size();
      blocks_.push_back(
          make_block<Mlp>(input.weights, input.model, unit - 1, input.rope_table, input.tp));
    }
  }

  /// Of a block's unit: its place among this stage's blocks.
  std::size_t index(int unit) const { return at(block_at_, unit); }

  std::unique_ptr<Group> alone_;
  int head_unit_;
  Embedding embedding_;
  std::vector<Block<Mlp>> blocks_;
  std::vector<std::size_t> block_at_;  // by unit
  Norm final_norm_;
  VocabHead head_;
  std::vector<SlotSaved> slots_;
  std::vector<SlotGradients> gradients_;  // by slot, as what they come from
  Tensor d_stream_[2];                    // unit u writes [u % 2] and reads the other
};

}  // namespace

std::unique_ptr<Stage> make_decoder_stage(const StageInput& input) {
  if (input.model.gated_mlp) return std::make_unique<DecoderStage<SwigluMlp>>(input);
  return std::make_unique<DecoderStage<GeluMlp>>(input);
}

}  // namespace trainctl
