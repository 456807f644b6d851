#include "kernels/control_group.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <new>
#include <system_error>

#include "core/base/memory/system_limits.h"
#include "kernels/cpu/machine/topology.h"
#include "tests/support/temporary_folder.h"

namespace quire {

namespace {

std::vector<std::string> names_of(const std::vector<ControlGroup>& groups) {
  std::vector<std::string> names;
  for (const ControlGroup& group : groups)
    names.push_back(group.name + (group.is_v1 ? " v1" : ""));
  return names;
}

}  // namespace

TEST_CASE("the groups that bound a process are those of v2 and of the controller's own hierarchy", "[base]") {
  const test::TemporaryFolder root;
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/jobs/one\n4:memory:/jobs\n1:name=systemd:/\n0::/outer\n");
  root.write("sys/fs/cgroup/unified/outer/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/jobs/one/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1000\n");
  using Names = std::vector<std::string>;
  CHECK(names_of(control_groups("memory", root.path())) == Names{"/outer", "/", "/jobs v1", "/ v1"});
  CHECK(names_of(control_groups("cpu", root.path())) == Names{"/outer", "/", "/jobs/one v1", "/jobs v1", "/ v1"});
  CHECK(names_of(control_groups("pids", root.path())) == Names{"/outer", "/"});
}

TEST_CASE("a container's group that is named as its host sees it is the mounted root", "[base]") {
  const test::TemporaryFolder root;
  root.write("proc/self/cgroup", "4:cpu:/docker/abc\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(names_of(control_groups("cpu", root.path())) == std::vector<std::string>{"/ v1"});
  CHECK(cgroup_cpu_limit(root.path()) == 2);
}

TEST_CASE("the smallest quota of all enclosing groups bounds the threads", "[base]") {
  const test::TemporaryFolder root;
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/jobs/one\n0::/outer/inner\n");
  CHECK_FALSE(cgroup_cpu_limit(root.path()));
  root.write("sys/fs/cgroup/unified/outer/cpu.max", "800000 100000\n");
  root.write("sys/fs/cgroup/unified/outer/inner/cpu.max", "max 100000\n");
  CHECK(cgroup_cpu_limit(root.path()) == 8);
  root.write("sys/fs/cgroup/cpu/jobs/one/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/jobs/one/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_cpu_limit(root.path()) == 8);
  root.write("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "300000\n");
  root.write("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_cpu_limit(root.path()) == 3);
}

TEST_CASE("a refused thread or allocation names the limits of the system", "[base]") {
  const test::TemporaryFolder root;
  root.write("proc/self/cgroup", "4:pids:/jobs\n");
  root.write("sys/fs/cgroup/pids/jobs/pids.max", "10\n");
  root.write("sys/fs/cgroup/pids/pids.max", "max\n");
  const std::system_error refused(std::make_error_code(std::errc::resource_unavailable_try_again));
  CHECK_THAT(describe_failure(refused, root.path()),
             Catch::Contains("another thread") && Catch::Contains("the cgroup /jobs may have 10 (pids.max") &&
                 Catch::Contains("server.text_threads") && !Catch::Contains("the cgroup / "));
  CHECK_THAT(describe_failure(std::bad_alloc(), root.path()),
             Catch::Contains("more memory") && !Catch::Contains("ulimit -v"));
  CHECK(describe_failure(std::runtime_error("the reason"), root.path()) == "the reason");

  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const struct rlimit limited { std::min<rlim_t>(rlim_t{1} << 40, before.rlim_max), before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_AS, &limited) == 0);
  const std::string text = describe_failure(std::bad_alloc(), root.path());
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK_THAT(text, Catch::Contains("limited to 1048576 MiB (ulimit -v"));
}

}  // namespace quire
