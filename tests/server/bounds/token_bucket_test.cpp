#include "server/ops/keys/token_bucket.h"

#include <catch2/catch.hpp>

using namespace quire;
using namespace std::chrono_literals;

TEST_CASE("a bucket is full before its first use, holds no more than its capacity and is refilled in a minute") {
  const TokenBucket::Time begin = TokenBucket::Time{} + 1h;
  TokenBucket bucket;
  CHECK(bucket.level(60.0, begin) == 60.0);
  bucket.refill(60.0, begin) -= 50.0;
  CHECK(bucket.level(60.0, begin + 20s) == Approx(30.0));
  CHECK(bucket.level(60.0, begin + 10min) == 60.0);
  CHECK(bucket.level(5.0, begin) == 5.0);  // the limit was lowered
  // A debt is refilled like any level.
  bucket.refill(60.0, begin) -= 40.0;
  CHECK(bucket.level(60.0, begin) == Approx(-30.0));
  CHECK(bucket.level(60.0, begin + 30s) == Approx(0.0));
  CHECK(TokenBucket::seconds_until(1.0, bucket.level(60.0, begin), 60.0) == Approx(31.0));
  CHECK(TokenBucket::seconds_until(1.0, 2.0, 60.0) == 0.0);
}

TEST_CASE("a clock that was set back gives a bucket nothing, and nothing twice") {
  const TokenBucket::Time begin = TokenBucket::Time{} + 1h;
  TokenBucket bucket;
  bucket.refill(60.0, begin) -= 60.0;
  CHECK(bucket.refill(60.0, begin - 30s) == Approx(0.0));
  CHECK(bucket.refill(60.0, begin) == Approx(0.0));
  CHECK(bucket.refill(60.0, begin + 10s) == Approx(10.0));
  // The level set counts from its own time.
  bucket.set(20.0, begin);
  CHECK(bucket.level(60.0, begin + 10s) == Approx(30.0));
}
