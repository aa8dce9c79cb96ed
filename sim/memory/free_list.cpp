#include "sim/memory/free_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/base/error.h"

namespace zerosim::internal {

namespace {

std::ptrdiff_t offset(std::size_t index) {
  return static_cast<std::ptrdiff_t>(index);
}

}  // namespace

FreeList::Position FreeList::lower_bound(const FreeEntry& entry) const {
  const auto chunk = std::partition_point(chunks_.begin(), chunks_.end(),
                                          [&](const Chunk& c) { return c.back() < entry; });
  if (chunk == chunks_.end()) return end();
  const FreeEntry* first = chunk->data();  // std::lower_bound branches
  for (std::size_t count = chunk->size(); count > 0;) {
    const std::size_t half = (count + 1) / 2;
    first += first[half - 1] < entry ? half : 0;
    count -= half;
  }
  return {static_cast<std::size_t>(chunk - chunks_.begin()),
          static_cast<std::size_t>(first - chunk->data())};
}

void FreeList::insert(const FreeEntry& entry) {
  Position place = lower_bound(entry);
  if (place == end()) {
    if (chunks_.empty()) {
      chunks_.emplace_back().reserve(kChunk);
    }
    place = {chunks_.size() - 1, chunks_.back().size()};
  }
  Chunk& chunk = chunks_[place.chunk];
  chunk.insert(chunk.begin() + offset(place.index), entry);
  if (chunk.size() == kChunk) split(place.chunk);
}

void FreeList::split(std::size_t chunk) {
  Chunk upper;
  upper.reserve(kChunk);
  Chunk& lower = chunks_[chunk];
  const auto middle = lower.begin() + offset(kChunk / 2);
  upper.assign(middle, lower.end());
  lower.erase(middle, lower.end());
  chunks_.insert(chunks_.begin() + offset(chunk) + 1, std::move(upper));
}

FreeList::Position FreeList::find(const FreeEntry& entry) const {
  const Position position = lower_bound(entry);
  ZS_CHECK(!(position == end()) && (*this)[position].block == entry.block,
           "a free block is in the list of its pool");
  return position;
}

void FreeList::erase(const FreeEntry& entry) {
  erase(find(entry));
}

void FreeList::replace(const FreeEntry& old, const FreeEntry& entry) {
  replace(find(old), entry);
}

void FreeList::replace(Position position, const FreeEntry& entry) {
  Chunk& chunk = chunks_[position.chunk];
  const auto place = chunk.begin() + offset(position.index);
  const bool first = position.chunk == 0;
  const bool last = position.chunk + 1 == chunks_.size();
  if (entry < *place && (first || !(entry < chunk.front()))) {
    const auto to = std::lower_bound(chunk.begin(), place, entry);
    std::move_backward(to, place, place + 1);
    *to = entry;
  } else if (*place < entry && (last || entry < chunk.back())) {
    const auto to = std::lower_bound(place + 1, chunk.end(), entry);
    *std::move(place + 1, to, place) = entry;
  } else {
    erase(position);
    insert(entry);
  }
}

void FreeList::erase(Position position) {
  Chunk& chunk = chunks_[position.chunk];
  chunk.erase(chunk.begin() + offset(position.index));
  if (chunk.empty()) chunks_.erase(chunks_.begin() + offset(position.chunk));
}

FreeList::Position FreeList::next(Position position) const {
  if (++position.index < chunks_[position.chunk].size()) return position;
  return {position.chunk + 1, 0};
}

FreeList::Position FreeList::previous(Position position) const {
  if (position.index > 0) return {position.chunk, position.index - 1};
  return {position.chunk - 1, chunks_[position.chunk - 1].size() - 1};
}

std::vector<FreeEntry> FreeList::entries() const {
  std::vector<FreeEntry> all;
  for (const Chunk& chunk : chunks_) all.insert(all.end(), chunk.begin(), chunk.end());
  return all;
}

}  // namespace zerosim::internal
