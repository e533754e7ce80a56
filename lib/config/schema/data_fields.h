// The field lists of the data section; see fields.h.
#pragma once

#include "config/schema/data_config.h"
#include "config/schema/field.h"
#include "config/schema/model_fields.h"

namespace trainctl {

template <class Visitor>
void fields(Visitor& visit, Is<DataSource> auto& source) {
  visit(source.path,
        field("path", "Text file or directory, .bin/.idx prefix, or .bin file").from(1).required());
  visit(source.weight,
        field("weight", "Share of the blend, relative to the other sources").above(0));
}

template <class Visitor>
void fields(Visitor& visit, Is<ValidationConfig> auto& validation) {
  visit(validation.path,
        field("path", "Separate validation data").from(1).unset("a part of the training data"));
  visit(validation.fraction,
        field("fraction", "Fraction of the training data held out; 0: no validation")
            .from(0)
            .below(1));
  visit(validation.split,
        field("split", "tail: the last part; blocks: every (1/fraction)th block of 1024 tokens"));
  visit(validation.max_sequences,
        field("max_sequences", "Maximum number of sequences per validation; 0: all").count(0));
}

template <class Visitor>
void fields(Visitor& visit, Is<DataConfig> auto& data) {
  visit(data.train,
        field("train", "Training data: a path, a list of paths, or a list of {path, weight}")
            .required());
  visit(data.tokenizer,
        field("tokenizer",
              "Converts text to tokens; sentencepiece takes a model file after the colon, hf a "
              "Hugging Face directory with a tokenizer.json")
            .one_of("byte|sentencepiece:|hf:"));
  visit.section(data.validation, field("validation", "Data for the validation loss"));
  visit(data.shuffle, field("shuffle", "Draw training sequences in a seeded random order"));
  visit(data.packing,
        field("packing",
              "Join documents and cut sequences from them; false: a sequence has tokens "
              "of one document, the rest of it is padding without loss"));
  visit(data.reset_attention_mask,
        field("reset_attention_mask", "Attention stays within a document"));
  visit(data.reset_position_ids, field("reset_position_ids", "Positions restart at each document"));
  visit(data.eod_mask_loss, field("eod_mask_loss", "No loss on the end-of-document token"));
  visit(data.eod_token, field("eod_token", "Token id that ends a document")
                            .from(0)
                            .to(2'147'483'647)
                            .unset("from the tokenizer, or from the file's documents"));
  visit(
      data.changed,
      field("changed",
            "If a source is not what the checkpoint's run read: refuse to go on, or allow it, with "
            "a new epoch of that source"));
  visit(data.cache_dir,
        field("cache_dir", "Directory for tokenised text; empty: the user's cache directory"));
  visit(data.prefetch, field("prefetch", "Number of batches to prepare ahead").from(0).to(1024));
}

}  // namespace trainctl
