# Hostile load on the built daemon: a few rounds of it as a test, as many minutes as wanted by `make hostile`.
find_program(NODE node)
if(NODE)
  add_test(NAME stress_hostile COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/hostile.mjs --rounds 2 --binary $<TARGET_FILE:quire>)
  set_tests_properties(stress_hostile PROPERTIES LABELS e2e)
endif()
