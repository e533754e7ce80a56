#include "engine/memory/feed.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string>
#include <vector>

#include "base/at.h"
#include "comm/await.h"

namespace trainctl {

namespace {

/// Consecutive tokens of the batch, and where they go in a tensor of this rank.
struct Piece {
  std::int64_t from, to, length;
};

/// Calls body(piece) for the tokens of `count` context-parallel ranks from rank `first` on; in the
/// tensor, those of one rank come after those of another.
template <class Body>
void for_pieces(const Share& share, const Batch& batch, std::int64_t first, std::int64_t count,
                const Body& body) {
  TokenLayout tokens = share.tokens;
  tokens.seq_length = batch.length;
  const bool fed_all = std::ssize(batch.tokens) > share.sequences * batch.length;
  const std::int64_t length = tokens.piece_length();
  const std::int64_t begin = fed_all ? share.replica * share.sequences : 0;
  std::int64_t to = 0;
  for (std::int64_t rank = first; rank < first + count; ++rank) {
    for (std::int64_t sequence = begin; sequence < begin + share.sequences; ++sequence) {
      for (std::int64_t piece = 0; piece < tokens.pieces(); ++piece, to += length) {
        body(Piece{sequence * tokens.seq_length + tokens.position(rank, piece), to, length});
      }
    }
  }
}

template <class T>
void copy(const std::vector<T>& from, const Tensor& to, const Piece& piece) {
  if (to.empty()) return;  // this stage has no use for it
  assert(piece.to + piece.length <= to.numel());
  assert(piece.from + piece.length <= std::ssize(from));
  std::memcpy(to.as<T>() + piece.to, from.data() + piece.from,
              static_cast<std::size_t>(piece.length) * sizeof(T));
}

/// For each token the position where its document begins.
void find_first_positions(const std::vector<std::int32_t>& document, std::int64_t length,
                          const Tensor& to, const Piece& piece) {
  if (to.empty()) return;
  assert(piece.to + piece.length <= to.numel());
  const std::int64_t position = piece.from % length;
  const std::int32_t* const sequence = document.data() + (piece.from - position);
  std::int64_t first = position;
  while (first > 0 && sequence[first - 1] == sequence[position]) --first;
  for (std::int64_t i = 0; i < piece.length; ++i) {
    const std::int64_t at = position + i;
    if (i > 0 && sequence[at] != sequence[at - 1]) first = at;
    to.as<std::int32_t>()[piece.to + i] = static_cast<std::int32_t>(first);
  }
}

/// A row of the batch begins with its real positions.
void mark_real_queries(const Batch& batch, const Tensor& to, const Piece& piece) {
  if (to.empty()) return;
  assert(piece.to + piece.length <= to.numel());
  const std::int64_t real = at(batch.real, piece.from / batch.length);
  const std::int64_t count =
      std::clamp<std::int64_t>(real - piece.from % batch.length, 0, piece.length);
  std::uint8_t* const marks = to.as<std::uint8_t>() + piece.to;
  std::fill_n(marks, count, std::uint8_t{1});
  std::fill_n(marks + count, piece.length - count, std::uint8_t{0});
}

/// Of the replica's whole sequences, on each context-parallel rank.
void mark_real(const Batch& batch, const Share& share, const Tensor& to) {
  if (to.empty()) return;
  assert(to.numel() == share.sequences * batch.length);
  const bool fed_all = std::ssize(batch.real) > share.sequences;
  const std::int64_t first = fed_all ? share.replica * share.sequences : 0;
  for (std::int64_t row = 0; row < share.sequences; ++row) {
    std::uint8_t* const marks = to.as<std::uint8_t>() + row * batch.length;
    const std::int64_t real = std::min(batch.length, at(batch.real, first + row));
    std::fill_n(marks, real, std::uint8_t{1});
    std::fill_n(marks + real, batch.length - real, std::uint8_t{0});
  }
}

void fill(const Batch& batch, const Share& share, const BatchTensors& to) {
  for_pieces(share, batch, share.rank, 1, [&](const Piece& piece) {
    copy(batch.tokens, to.tokens, piece);
    copy(batch.labels, to.labels, piece);
    copy(batch.position, to.position, piece);
    copy(batch.global_token, to.global_token, piece);
    copy(batch.loss_weight, to.loss_weight, piece);
  });
  const std::int64_t first = share.rank / share.heads_ranks * share.heads_ranks;
  for_pieces(share, batch, first, share.heads_ranks, [&](const Piece& piece) {
    copy(batch.global_token, to.query_token, piece);
    find_first_positions(batch.document, batch.length, to.first_position, piece);
    mark_real_queries(batch, to.real_query, piece);
  });
  mark_real(batch, share, to.real);
}

constexpr std::array each{
    &BatchTensors::tokens,       &BatchTensors::labels,      &BatchTensors::position,
    &BatchTensors::global_token, &BatchTensors::loss_weight, &BatchTensors::first_position,
    &BatchTensors::query_token,  &BatchTensors::real,        &BatchTensors::real_query};

}  // namespace

Feed::Feed(const BatchTensors& to, double deadline_seconds, int places)
    : to_(to), on_host_(static_cast<std::size_t>(places), to), deadline_(deadline_seconds) {
  const bool on_device = std::ranges::any_of(
      each, [&](Tensor BatchTensors::*x) { return (to.*x).device == DeviceKind::cuda; });
  if (!on_device) return;
  std::vector<SlabRow> rows;
  for (int place = 0; place < places; ++place) {
    for (Tensor BatchTensors::*x : each) {
      rows.push_back(
          {std::to_string(rows.size()), (to.*x).empty() ? Shape{0} : (to.*x).shape, (to.*x).dtype});
    }
  }
  copy_ = Slab::on_host_for(DeviceKind::cuda, rows);
  aim(to);
}

void Feed::aim(const BatchTensors& to) {
  to_ = to;
  std::ranges::fill(on_host_, to);
  if (copy_.bytes().empty()) return;
  std::size_t row = 0;
  for (BatchTensors& place : on_host_) {
    for (Tensor BatchTensors::*x : each) {
      Tensor& host = place.*x;
      const std::string name = std::to_string(row++);
      if (host.empty()) continue;
      const Tensor room = copy_.at(name);
      host = room.view({room.numel()}).slice(0, host.numel()).view(host.shape);
    }
  }
}

void Feed::run(const Batch& batch, const Share& share, Stream& stream) {
  // The device may still copy the micro-batch before.
  if (copied_.stream != nullptr) await(copied_, deadline_, [] { return "the copy of a batch"; });
  fill(0, batch, share);
  send(0, stream);
  if (!copy_.bytes().empty()) copied_ = stream.record();
}

void Feed::fill(int place, const Batch& batch, const Share& share) {
  trainctl::fill(batch, share, at(on_host_, place));
}

void Feed::send(int place, Stream& stream) {
  if (copy_.bytes().empty()) return;
  for (Tensor BatchTensors::*x : each) {
    if (!(to_.*x).empty()) stream.copy(to_.*x, at(on_host_, place).*x);
  }
}

}  // namespace trainctl
