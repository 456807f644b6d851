// The modules: features of the daemon that a build may leave out (cmake -DQUIRE_MODULES), each with its sources,
// packages, routes, keys, commands and metrics. A row of the tables of routes, keys and commands names its module.
// Immutable; any thread.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "quire_modules.h"  // made by cmake/modules.cmake

namespace quire {

enum class Module { kCore, kBatches, kFleet, kHub, kImages, kOtlp, kPage, kSimulator, kTerminal };

struct ModuleRow {
  Module module;
  std::string_view name;  // in QUIRE_MODULES
  bool is_built;
};

inline constexpr ModuleRow kModules[] = {
    {Module::kCore, "core", true},
    {Module::kBatches, "batches", builds::batches},
    {Module::kFleet, "fleet", builds::fleet},
    {Module::kHub, "hub", builds::hub},
    {Module::kImages, "images", builds::images},
    {Module::kOtlp, "otlp", builds::otlp},
    {Module::kPage, "page", builds::page},
    {Module::kSimulator, "simulator", builds::simulator},
    {Module::kTerminal, "terminal", builds::terminal},
};

constexpr const ModuleRow& row_of(Module module) {
  return *std::find_if(std::begin(kModules), std::end(kModules),
                       [module](const ModuleRow& row) { return row.module == module; });
}

constexpr bool is_built(Module module) {
  return row_of(module).is_built;
}

// "needs the module 'hub', which this build leaves out: ..."
inline std::string left_out(Module module) {
  const std::string name(row_of(module).name);
  return "needs the module '" + name +
         "', which this build leaves out: build with cmake -DQUIRE_MODULES=all, or with '" + name + "' in its list";
}

}  // namespace quire
