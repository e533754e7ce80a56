// A world that hands each call to another one, for worlds that change a few calls.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/world.h"

namespace trainctl {

/// `inner` must outlive this one.
class ForwardingWorld : public World {
 public:
  explicit ForwardingWorld(World& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  const std::string& host() const override { return inner_.host(); }
  bool in_one_process() const override { return inner_.in_one_process(); }
  Traffic& traffic() override { return inner_.traffic(); }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    return inner_.group(name, ranks);
  }
  Activity* activity() override { return inner_.activity(); }
  void check() const override { inner_.check(); }
  void abort(int exit_code) noexcept override { inner_.abort(exit_code); }

 protected:
  World& inner() const { return inner_; }

 private:
  World& inner_;
};

}  // namespace trainctl
