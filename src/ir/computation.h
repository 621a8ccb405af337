// Computation: a graph as an attribute of a node that runs it in turns: the body of a loop.
#pragma once

#include <vector>

#include "core/hash.h"
#include "ir/graph.h"

namespace torch_xla {

// Immutable, so that traces, programs and threads share it.
struct Computation {
  // The seed and offset of a random node's stream, as positions among Graph::scalars.
  struct Draw {
    int32_t seed = 0;
    int32_t offset = 0;
  };

  Graph graph; // a trace; its parameters are row-major, its nodes have no locations
  Hash128 hash; // of the structure: computations with equal hashes can share a program
  std::vector<Draw> draws; // also those of inner loops
};

// The draws of a graph's nodes. Throws UserError for a random node without a seed of its own.
std::vector<Computation::Draw> find_draws(const Graph& graph);

// Throws UserError for a collective: replicas could not meet in its turns.
ComputationRef make_computation(Graph graph);

// Attributes of a node that runs a computation, by position. Its operands, and the body's parameters in the same order, are: the initial
// values of the carried values; tensors, one slice along dim 0 for each turn; values that all turns share; the body's scalars. The body
// returns the next carried values, then one slice of each further result. The node returns the last carried values, then these slices
// joined along a new dim 0.
enum LoopAttr {
  kLoopBody = 0, // ComputationRef
  kLoopCarried = 1, // how many values are carried
  kLoopSliced = 2, // how many tensors are sliced
  kLoopTrips = 3, // turns; None: as long as the last carried value, a Bool without dims, is true
  kLoopReverse = 4, // from the last slice to the first
};

// The computation in the attribute kLoopBody. Throws UserError for another attribute.
const Computation& body_of(const Attr& attr);
// The computation that a node runs; null for other nodes.
const Computation* find_body(const Node& node);

// The seed of one turn's stream: splitmix64's steps on the sum, so inner loops draw other numbers.
constexpr uint64_t kTurnStep = 0x9e3779b97f4a7c15;
constexpr uint64_t kTurnMix[2] = {0xbf58476d1ce4e5b9, 0x94d049bb133111eb};
constexpr int kTurnShifts[3] = {30, 27, 31};
constexpr uint64_t seed_of_turn(uint64_t seed, uint64_t turn) {
  uint64_t z = seed + (turn + 1) * kTurnStep;
  z = (z ^ (z >> kTurnShifts[0])) * kTurnMix[0];
  z = (z ^ (z >> kTurnShifts[1])) * kTurnMix[1];
  return z ^ (z >> kTurnShifts[2]);
}

} // namespace torch_xla
