// Bucket i counts what is below 2^(10+i) ns.
#include "core/histogram.h"

#include <doctest/doctest.h>

using namespace pymon;

TEST_CASE("bounds belong to the bucket above") {
  CHECK(histogram_bucket(0) == 0);
  CHECK(histogram_bucket(1023) == 0);
  CHECK(histogram_bucket(1024) == 1);
  for (uint32_t bucket = 1; bucket < kHistogramBuckets; ++bucket) {
    const uint64_t lower_ns = uint64_t{1} << (kHistogramFirstShift + bucket - 1);
    CHECK(histogram_bucket(lower_ns - 1) == bucket - 1);
    CHECK(histogram_bucket(lower_ns) == bucket);
  }
}

TEST_CASE("the last bucket takes all that is longer") {
  CHECK(histogram_bucket(uint64_t{1} << 50) == kHistogramBuckets - 1);
  CHECK(histogram_bucket(UINT64_MAX) == kHistogramBuckets - 1);
}

TEST_CASE("adding counts once") {
  uint64_t buckets[kHistogramBuckets] = {};
  histogram_add(buckets, 5000);
  histogram_add(buckets, 5001);
  CHECK(buckets[histogram_bucket(5000)] == 2);
}
