// Muon in the YAML files of other programs: MindFormers' `optimizer: {type: Muon}` and
// LLaMA-Factory's `optim_config: {name: muon}`.
#pragma once

#include "config/mindformers/file_report.h"

namespace trainctl {

class MuonOfFile {
 public:
  /// Moves its keys to our section optimizer, with its defaults where ours differ. Nothing happens
  /// in files that have neither of both. `is_mindformers`: the file is one of MindFormers.
  MuonOfFile(MindformersFile& file, bool is_mindformers);
  /// The entries of optimizer.groups that follow, once the model has our keys.
  void give_groups();

 private:
  void take_mindformers();
  void take_llama_factory();
  void move(const std::string& from, const char* to);
  void move_betas(const std::string& from, const char* first, const char* second);
  void give(const char* to, const char* value);
  void put_coefficients(const std::string& from);
  void settle_clipping();

  MindformersFile& file_;
  Span where_{};
  bool found_ = false;
  bool decays_all_ = false;  // weight decay also on vectors
};

}  // namespace trainctl
