// What a fork leaves of the device: the parent's tensors may be freed in the child, and nothing may run there.
#pragma once

#include <mutex>

namespace torch_xla::process {

// The device is in use: from now on a forked child is refused. Any thread, any number of times.
void note_use();
bool is_used(); // whether it is in use
// True in a process that was forked from one that had used the device.
bool in_forked_child();
// Throws UserError in a forked child. Whoever takes a lock of the device that is held for longer than a moment asks before, as another
// thread of the parent may have held it at the fork.
void check();
// fork() waits until the mutex is free and the child finds it so: for locks that are held for a moment and used in a child too. Under it
// only locks are taken that were given here after it. The mutex is never destroyed.
void keep_sound(std::mutex& mutex);

} // namespace torch_xla::process
