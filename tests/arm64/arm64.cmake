# quire with the fused scalar level alone: the texts that levels of arm64 are compared with (texts.test.mjs).
if(NOT QUIRE_ARM64 AND NOT QUIRE_SANITIZE)
  add_executable(quire_fused EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/server/main.cpp kernels/fused_level.cpp arm64/fused_levels.cpp)
  target_link_libraries(quire_fused PRIVATE quire_config quire_server)
  set_target_properties(quire_fused PROPERTIES OUTPUT_NAME quire-fused)
endif()

# Instructions per byte of weights, counted under qemu (count_product.py): not position-independent, so that addresses are symbols'.
if(QUIRE_ARM64)
  # What fits continuous integration: every level against the fused scalar level.
  add_test(NAME arm64_kernels COMMAND kernel_tests --use-colour no "levels of one arithmetic*,a cgroup*,auto takes*,the levels are*")
  add_executable(count_product EXCLUDE_FROM_ALL arm64/count_product.cpp kernels/random_data.cpp)
  target_link_libraries(count_product PRIVATE quire_kernels)
  target_link_options(count_product PRIVATE -no-pie)
endif()
