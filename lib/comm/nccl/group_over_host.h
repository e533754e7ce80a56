// What the groups of tensors on devices share: each is over a group of host memory with the same
// ranks, and has its name. Internal to comm/.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "comm/group.h"

namespace trainctl {

class GroupOverHost : public Group {
 public:
  explicit GroupOverHost(std::unique_ptr<Group> host) : host_(std::move(host)) {}

  int rank() const final { return host_->rank(); }
  int size() const final { return host_->size(); }
  const std::string& name() const final { return host_->name(); }
  double deadline_seconds() const final { return host_->deadline_seconds(); }
  Group& on_host() final { return *host_; }

 private:
  std::unique_ptr<Group> host_;
};

}  // namespace trainctl
