// Allocation of the small objects of each recorded operation: each thread keeps the memory of freed objects, and live objects are counted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "core/process.h"

namespace torch_xla {

// Inherit publicly; T is the deriving class. Objects may be freed on another thread than the one that made them.
template <class T>
class FreeListed {
 public:
  static void* operator new(size_t size) {
    List& l = list();
    Link* link = l.head;
    if (!link) {
      void* fresh = ::operator new(size);
      l.count(1);
      return fresh;
    }
    l.count(1);
    l.head = link->next;
    --l.length;
    return link;
  }
  static void operator delete(void* p) {
    List& l = list();
    l.count(-1);
    if (l.length >= kMaxKept) {
      ::operator delete(p);
      return;
    }
    l.head = new (p) Link{l.head};
    ++l.length;
  }
  // Objects alive in the process; exact when no other thread makes or frees one meanwhile. Any thread.
  static int64_t count_live() {
    Registry& r = registry();
    std::lock_guard<std::mutex> lock(r.mutex);
    int64_t sum = r.of_ended_threads;
    for (const List* l : r.lists) {
      sum += l->live.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  static constexpr size_t kMaxKept = 4096;
  struct Link {
    Link* next;
  };
  struct List {
    Link* head = nullptr;
    size_t length = 0;
    bool begun = false;
    std::atomic<int64_t> live = 0; // objects made less objects freed by this thread; only this thread writes it

    void count(int64_t n) {
      live.store(live.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
  };
  struct Registry {
    std::mutex mutex;
    std::vector<const List*> lists;
    int64_t of_ended_threads = 0;
  };
  // Trivially destructible, so deleters may run at any time of a thread's end; the Sweeper frees the memory that the thread kept.
  struct Sweeper {
    List& list;
    ~Sweeper() {
      list.length = kMaxKept; // keeps nothing from now on
      while (list.head) {
        Link* link = list.head;
        list.head = link->next;
        ::operator delete(link);
      }
      Registry& r = registry();
      std::lock_guard<std::mutex> lock(r.mutex);
      std::erase(r.lists, &list);
      r.of_ended_threads += list.live.load(std::memory_order_relaxed);
    }
  };
  static Registry& registry() {
    static auto* r = [] { // never destroyed: objects are freed until the process ends
      auto* made = new Registry;
      process::keep_sound(made->mutex);
      return made;
    }();
    return *r;
  }
  [[gnu::noinline]] static void begin(List& l) {
    l.begun = true;
    {
      Registry& r = registry();
      std::lock_guard<std::mutex> lock(r.mutex);
      r.lists.push_back(&l);
    }
    static thread_local Sweeper sweeper{l};
  }
  static List& list() {
    static thread_local constinit List l [[gnu::tls_model("initial-exec")]];
    if (!l.begun) {
      begin(l);
    }
    return l;
  }
};

} // namespace torch_xla
