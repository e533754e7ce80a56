#include "nn/stage.h"

#include <cmath>
#include <vector>

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
      : embedding_(make_embedding(input.weights, input.model)),
        final_norm_(make_norm(input.weights, "final_norm", input.model.family == Family::gpt2,
                              input.model.norm_epsilon)),
        head_(make_vocab_head(input.weights, input.model)),
        last_unit_(static_cast<int>(input.model.layers) + 1) {
    for (std::int64_t layer = 0; layer < input.model.layers; ++layer) {
      blocks_.push_back(make_block<Mlp>(input.weights, input.model, layer, input.rope_table));
    }
    for (int slot = 0; slot < input.slots; ++slot) slots_.push_back(place_slot(input, slot));
    for (int parity = 0; parity < 2; ++parity) {
      gradients_[parity] = place_gradients(input, parity);
      d_stream_[parity] = input.activations(0, "d_stream." + std::to_string(parity));
    }
  }

  void forward(const Pass& pass, int slot, int begin, int end) override {
    const SlotSaved& saved = slots_[static_cast<std::size_t>(slot)];
    for (int unit = begin; unit < end; ++unit) {
      if (unit == 0) {
        embedding_.forward(pass, saved.embedded);
      } else if (unit < last_unit_) {
        block(unit).forward(pass, saved.blocks[static_cast<std::size_t>(unit - 1)]);
      } else {
        final_norm_.forward(pass, saved.final_norm);
        head_.forward(pass, saved.head);
      }
    }
  }

  void backward_input(const Pass& pass, int slot, int begin, int end) override {
    const SlotSaved& saved = slots_[static_cast<std::size_t>(slot)];
    for (int unit = end - 1; unit >= begin; --unit) {
      if (unit == last_unit_) {
        final_norm_.backward(pass, saved.final_norm, saved.head.d_x, Tensor{}, d_stream_[unit % 2]);
      } else if (unit > 0) {
        block(unit).backward_input(pass, saved.blocks[static_cast<std::size_t>(unit - 1)],
                                   gradients_[unit % 2]);
      } else {
        embedding_.backward(pass, d_stream_[1]);
      }
    }
  }

  void backward_weight(const Pass& pass, int slot, int begin, int end) override {
    const SlotSaved& saved = slots_[static_cast<std::size_t>(slot)];
    for (int unit = end - 1; unit >= begin; --unit) {
      if (unit == 0 || unit == last_unit_) continue;  // finished in F (head) and B (embedding)
      block(unit).backward_weight(pass, saved.blocks[static_cast<std::size_t>(unit - 1)],
                                  gradients_[unit % 2]);
    }
  }

 private:
  const Block<Mlp>& block(int unit) const { return blocks_[static_cast<std::size_t>(unit - 1)]; }

  Embedding embedding_;
  std::vector<Block<Mlp>> blocks_;
  Norm final_norm_;
  VocabHead head_;
  int last_unit_;
  std::vector<SlotSaved> slots_;
  Tensor d_stream_[2];           // unit u writes [u % 2] and reads the other
  BlockGradients gradients_[2];  // of blocks on even and odd units
};

}  // namespace

std::unique_ptr<Stage> make_decoder_stage(const StageInput& input) {
  if (input.model.family == Family::gpt2) return std::make_unique<DecoderStage<GeluMlp>>(input);
  return std::make_unique<DecoderStage<SwigluMlp>>(input);
}

}  // namespace trainctl
