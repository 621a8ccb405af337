// The compared calls and their format in the store: a few places for each replica, used in turn.
#include "distributed/agreement.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <sstream>

#include "core/errors.h"
#include "core/hash.h"
#include "core/step_line.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

constexpr int64_t kPlaces = 16;
constexpr size_t kMaxKnown = 1 << 16; // of programs whose sizes change in each step
const std::string kDifference = "difference";

std::string place_of(int64_t rank, int64_t number) {
  return str("call/", rank, "/", number % kPlaces);
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Elements without the part that each replica chooses: rows of dim 0.
int64_t count(const Collective& c) {
  const bool in_rows = !c.received.empty();
  return in_rows ? c10::multiply_integers(c.input.sizes().slice(1)) : c.input.numel();
}

void add_numbers(Hash128& hash, at::IntArrayRef numbers) {
  hash.add_bytes(numbers.data(), numbers.size() * sizeof(int64_t));
}

uint64_t hash_of(const Collective& c) {
  Hash128 hash;
  hash.add_bytes(c.name, std::string_view(c.name).size());
  hash.add_bytes(c.reduction.data(), c.reduction.size());
  hash.add(static_cast<uint64_t>(c.input.scalar_type()));
  hash.add(static_cast<uint64_t>(count(c)));
  add_numbers(hash, c.numbers);
  return hash.lo;
}

} // namespace

// The contents of a place.
struct Agreement::Shown {
  int64_t number = 0; // 0: nothing yet
  size_t rank = 0;
  int64_t replica = 0;
  std::string what; // equal where the calls match
  std::string line;
  std::vector<int64_t> received, sent;

  std::string pack() const {
    std::ostringstream out;
    out << number << ' ' << rank << ' ' << replica << ' ' << received.size();
    for (const std::vector<int64_t>* rows : {&received, &sent}) {
      for (int64_t row : *rows) {
        out << ' ' << row;
      }
    }
    out << '\n' << what << '\n' << line;
    return out.str();
  }
  static Shown unpack(const std::string& text) {
    Shown shown;
    size_t rows = 0;
    std::istringstream in(text);
    in >> shown.number >> shown.rank >> shown.replica >> rows;
    for (std::vector<int64_t>* list : {&shown.received, &shown.sent}) {
      for (size_t i = 0; i < rows; ++i) {
        in >> list->emplace_back();
      }
    }
    in.ignore();
    std::getline(in, shown.what);
    std::getline(in, shown.line);
    return shown;
  }

  std::string to_text() const {
    return str("replica ", replica, " calls ", what, line);
  }
};

std::string describe(const Collective& c) {
  std::string text = c.name;
  text += c.reduction.empty() ? "" : str("(", c.reduction, ")");
  if (!c.numbers.empty()) {
    text += c10::str(" with ", c.numbers);
  }
  text += c.received.empty() ? " of " : " of rows of ";
  return str(text, count(c), " numbers of ", c10::getDtypeNames(c.input.scalar_type()).first);
}

std::string describe_line() {
  std::string line = location_text(StepLine::current() >= 0 ? StepLine::current() : current_location());
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line.empty() ? line : " at " + line;
}

Agreement::Agreement(StoreRef store, int64_t rank, int64_t size, int64_t replica)
    : store_(std::move(store)), rank_(rank), size_(size), replica_(replica) {
  std::vector<std::string> places;
  for (int64_t number = 0; number < kPlaces; ++number) {
    places.push_back(place_of(rank_, number));
  }
  store_->multiSet(places, std::vector(places.size(), bytes_of(Shown().pack())));
}

bool Agreement::is_new(const Collective& collective) {
  Hash128 hash;
  hash.add(std::exchange(last_, hash_of(collective)));
  hash.add(last_);
  add_numbers(hash, collective.received);
  add_numbers(hash, collective.sent);
  std::unordered_set<uint64_t>& known = collective.received.empty() ? known_ : known_rows_;
  if (known.size() >= kMaxKnown) {
    known.clear();
  }
  return known.insert(hash.lo).second;
}

std::vector<Agreement::Shown> Agreement::read_others(int64_t number) {
  std::vector<std::string> places;
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      places.push_back(place_of(rank, number));
    }
  }
  std::vector<Shown> others;
  for (const std::vector<uint8_t>& bytes : store_->multiGet(places)) {
    others.push_back(Shown::unpack(text_of(bytes)));
  }
  return others;
}

void Agreement::compare(const Collective& collective, const Shown& ours, const Shown& theirs) {
  if (ours.what != theirs.what) {
    fail(str(ours.to_text(), ", where ", theirs.to_text()));
  }
  for (const auto& [from, to] : {std::pair{&ours, &theirs}, std::pair{&theirs, &ours}}) {
    if (!collective.received.empty() && from->sent.at(to->rank) != to->received.at(from->rank)) {
      fail(c10::str(
          from->to_text(),
          " and sends ",
          at::IntArrayRef(from->sent),
          " rows, where ",
          to->to_text(),
          " and receives ",
          at::IntArrayRef(to->received),
          " rows"));
    }
  }
}

Agreement::Call Agreement::begin(const Collective& collective) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Call call{++num_calls_, is_new(collective), collective.meets && collective.received.empty() && collective.input.numel() > 0};
  if (!call.is_shown) {
    return call;
  }
  const Shown ours{
      call.number,
      static_cast<size_t>(rank_),
      replica_,
      describe(collective),
      describe_line(),
      collective.received.vec(),
      collective.sent.vec()};
  ours_ = ours.to_text();
  store_->set(place_of(rank_, call.number), bytes_of(ours.pack()));
  for (const Shown& theirs : read_others(call.number)) {
    if (theirs.number == call.number) {
      compare(collective, ours, theirs);
    }
  }
  return call;
}

// All replicas have begun the call by now. A replica that published nothing called a pair that was not new to it.
void Agreement::end(const Call& call) {
  if (!call.is_shown || !call.meets) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Shown& theirs : read_others(call.number)) {
    if (theirs.number < call.number) {
      fail(str(ours_, ", but another replica repeats its earlier calls"));
    }
  }
}

void Agreement::fail(const std::string& text) {
  const std::string whole = text + ": all replicas of a group have to call the same collectives in the same order";
  store_->compareSet(kDifference, {}, bytes_of(whole));
  TORCH_CHECK(false, text_of(store_->get(kDifference)));
}

std::string Agreement::find_difference() {
  return store_->check({kDifference}) ? text_of(store_->get(kDifference)) : "";
}

} // namespace torch_xla
