// Measures the time of a thread in matrix products and collectives, with two clock readings for
// each. Code that executes the rows of a step reads differences of it.
#pragma once

#include <chrono>

namespace trainctl {

/// Seconds that the calling thread has spent since it began.
struct TimeSpent {
  double products = 0;     // matrix products
  double collectives = 0;  // collectives, with the wait for the other ranks

  friend TimeSpent operator-(const TimeSpent& left, const TimeSpent& right) {
    return {left.products - right.products, left.collectives - right.collectives};
  }
};

inline TimeSpent& time_spent() {
  thread_local TimeSpent spent;
  return spent;
}

/// Adds the time between its construction and destruction to one member of time_spent().
class AddTime {
 public:
  explicit AddTime(double TimeSpent::*member) : member_(member), start_(Clock::now()) {}
  ~AddTime() {
    time_spent().*member_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  AddTime(const AddTime&) = delete;
  AddTime& operator=(const AddTime&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double TimeSpent::*member_;
  Clock::time_point start_;
};

}  // namespace trainctl
