if(QUIRE_ARM64)
  # What fits continuous integration: every level against the fused scalar level.
  add_test(NAME arm64_kernels COMMAND kernel_tests "levels of one arithmetic*,a cgroup*,auto takes*,the levels are*")
  add_executable(count_product EXCLUDE_FROM_ALL arm64/count_product.cpp kernels/random_data.cpp)
  target_link_libraries(count_product PRIVATE quire_kernels)
  target_link_options(count_product PRIVATE -no-pie)
  add_test(NAME arm64_counts COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/count_product.py ${CMAKE_BINARY_DIR} ${CMAKE_SYSROOT})
endif()
