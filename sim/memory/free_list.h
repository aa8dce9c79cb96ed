/// \file
/// The free blocks of one pool in order of (size, address): what std::set<Block*> is in PyTorch.
///
/// Entries lie sorted in chunks of at most 32, so that a search touches a few cache lines and an
/// insertion moves at most 768 bytes. With n entries:
///
///     best fit, insert, erase    O(log n + 32), O(n / 32) where a chunk splits or empties
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zerosim::internal {

struct FreeEntry {
  std::int64_t size = 0;
  std::int64_t address = 0;
  std::int32_t block = -1;
  /// By size, then address; addresses are unique. Written so that it compiles without branches.
  friend constexpr bool operator<(const FreeEntry& a, const FreeEntry& b) {
    return static_cast<bool>(
        static_cast<int>(a.size < b.size) |
        (static_cast<int>(a.size == b.size) & static_cast<int>(a.address < b.address)));
  }
  friend constexpr bool operator==(const FreeEntry& a, const FreeEntry& b) {
    return a.size == b.size && a.address == b.address;
  }
};

class FreeList {
 public:
  /// A place in the list; void after any insertion or erasure.
  struct Position {
    std::size_t chunk = 0;
    std::size_t index = 0;
    friend constexpr bool operator==(Position, Position) = default;
  };

  void insert(const FreeEntry& entry);
  /// The entry must be there.
  void erase(const FreeEntry& entry);
  void erase(Position position);
  /// Erases one and inserts another in its stead: cheap if their places are near.
  void replace(const FreeEntry& old, const FreeEntry& entry);
  void replace(Position position, const FreeEntry& entry);

  [[nodiscard]] bool empty() const { return chunks_.empty(); }
  [[nodiscard]] Position begin() const { return {}; }
  [[nodiscard]] Position end() const { return {chunks_.size(), 0}; }
  /// The first entry of at least `size` bytes.
  [[nodiscard]] Position best_fit(std::int64_t size) const { return lower_bound({size, 0, -1}); }
  [[nodiscard]] Position next(Position position) const;
  /// Of any position but `begin`.
  [[nodiscard]] Position previous(Position position) const;
  [[nodiscard]] const FreeEntry& operator[](Position position) const {
    return chunks_[position.chunk][position.index];
  }

  /// A copy, in order.
  [[nodiscard]] std::vector<FreeEntry> entries() const;

 private:
  using Chunk = std::vector<FreeEntry>;
  static constexpr std::size_t kChunk = 32;

  [[nodiscard]] Position lower_bound(const FreeEntry& entry) const;
  [[nodiscard]] Position find(const FreeEntry& entry) const;
  void split(std::size_t chunk);

  std::vector<Chunk> chunks_;  ///< none is empty
};

}  // namespace zerosim::internal
