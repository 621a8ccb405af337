// Small objects that come and go with every recorded operation: memory of freed ones is kept by thread.
#pragma once

#include <cstddef>
#include <new>

namespace torch_xla {

// Inherit publicly; T is the deriving class. Objects may be freed on another thread than the one that made them.
template <class T>
class FreeListed {
 public:
  static void* operator new(size_t size) {
    List& l = list();
    if (!l.head) {
      return ::operator new(size);
    }
    Link* link = l.head;
    l.head = link->next;
    --l.length;
    return link;
  }
  static void operator delete(void* p) {
    List& l = list();
    if (l.length >= kMaxKept) {
      ::operator delete(p);
      return;
    }
    l.head = new (p) Link{l.head};
    ++l.length;
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
  };
  // Trivially destructible, so that deleters may run at any time of a thread's end; what a dead thread kept is freed by its Sweeper.
  struct Sweeper {
    List& list;
    ~Sweeper() {
      list.length = kMaxKept; // keeps nothing from now on
      while (list.head) {
        Link* link = list.head;
        list.head = link->next;
        ::operator delete(link);
      }
    }
  };
  [[gnu::noinline]] static void begin(List& l) {
    l.begun = true;
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
