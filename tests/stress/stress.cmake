# Hostile load on the built daemon: a few rounds of it as a test, as many minutes as wanted by `make hostile`. Streams of bytes that a
# proxy might read otherwise: 2,000 as a test, more by `differential.mjs --runs`.
find_program(NODE node)
if(NODE)
  add_test(NAME stress_hostile COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/hostile.mjs --rounds 2 --binary $<TARGET_FILE:quire>)
  add_test(NAME stress_differential COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/differential.mjs --binary $<TARGET_FILE:quire>)
  set_tests_properties(stress_hostile stress_differential PROPERTIES LABELS e2e)
endif()
