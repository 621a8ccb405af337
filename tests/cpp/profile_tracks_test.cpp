// The tracks on which torch.profiler shows steps: those at the same time are apart, those within each other are not.
#include "device/profile_tracks.h"

#include <gtest/gtest.h>

namespace torch_xla {
namespace {

observer::Event step(int64_t start, int64_t end, int device = 0) {
  observer::Event event;
  event.phase = observer::Phase::kLibrary;
  event.start_ns = start;
  event.end_ns = end;
  event.device = device;
  return event;
}

TEST(ProfileTracks, StepsAtTheSameTimeAreApart) {
  Tracks tracks;
  EXPECT_EQ(tracks.take(step(0, 10), /*thread=*/1), kPrograms);
  EXPECT_EQ(tracks.take(step(10, 30), 1), kPrograms);
  EXPECT_EQ(tracks.take(step(12, 20), 2), kNumTracks);
  EXPECT_EQ(tracks.take(step(13, 20), 3), kNumTracks + 1);
  EXPECT_EQ(tracks.take(step(20, 40), 3), kNumTracks);
  EXPECT_EQ(tracks.take(step(20, 40, /*device=*/1), 4), kPrograms);
  EXPECT_EQ(tracks.take(step(50, 60), 3), kPrograms);
  EXPECT_EQ(tracks.size(), kNumTracks + 2);
  EXPECT_EQ(track_name(kNumTracks + 1), "programs, beside 2");
}

TEST(ProfileTracks, TheStepsOfALoopAreWithinIt) {
  Tracks tracks;
  EXPECT_EQ(tracks.take(step(0, 100), 1), kPrograms);
  EXPECT_EQ(tracks.take(step(10, 20), 1), kPrograms);
  EXPECT_EQ(tracks.take(step(30, 40), 2), kNumTracks);
  EXPECT_EQ(tracks.size(), kNumTracks + 1);
}

} // namespace
} // namespace torch_xla
