// Guards against use of the device after a fork: a child may free the parent's tensors and run nothing.
#pragma once

#include <mutex>

namespace torch_xla::process {

// The device is in use: from now on a forked child is refused. Any thread, any number of times.
void note_use();
bool is_used(); // whether it is in use
// True in a process that was forked from one that had used the device.
bool in_forked_child();
// Throws UserError in a forked child. Call it before taking a lock of the device that is held for longer than a moment: another thread of
// the parent may have held it at the fork.
void check();
// fork() waits until the mutex is free, so the child finds it free: for locks held for a moment and used in a child too. While holding it,
// take only locks that were passed here later. The mutex is never destroyed.
void keep_sound(std::mutex& mutex);

} // namespace torch_xla::process
