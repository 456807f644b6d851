# End-to-end tests: node scripts with unmodified npm packages against the built binary and the bundled model.
find_program(NODE node)
find_program(NPM npm)
set(QUIRE_DEMO_MODEL ${PROJECT_SOURCE_DIR}/deploy/demo-model/quire-demo.gguf)
if(NOT NODE OR NOT NPM)
  message(STATUS "end-to-end tests are left out: node or npm is absent")
  return()
endif()

# The pinned versions run on node 18, which Debian 12 has, and on newer ones; @langchain/openai 0.6 is the last for 18.
# The packages are installed into the build folder, so that several builds do not share one.
set(e2e_folder ${CMAKE_CURRENT_BINARY_DIR}/e2e)
set(e2e_copies)
foreach(folder . apis daemon fleet models page)
  file(GLOB e2e_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/${folder}/*.mjs ${CMAKE_CURRENT_LIST_DIR}/${folder}/*.json)
  list(APPEND e2e_copies COMMAND ${CMAKE_COMMAND} -E make_directory ${e2e_folder}/${folder}
    COMMAND ${CMAKE_COMMAND} -E copy_if_different ${e2e_files} ${e2e_folder}/${folder})
endforeach()
add_custom_target(e2e_scripts ALL ${e2e_copies})
add_test(NAME e2e_packages COMMAND ${NPM} ci --no-audit --no-fund --omit=optional --prefer-offline --fetch-retries 5 WORKING_DIRECTORY ${e2e_folder})
set_tests_properties(e2e_packages PROPERTIES FIXTURES_SETUP e2e_packages LABELS "e2e;threads")

file(GLOB e2e_tests RELATIVE ${CMAKE_CURRENT_LIST_DIR} CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*/*.test.mjs)
list(FILTER e2e_tests EXCLUDE REGEX "^agents/")  # `make agents`
list(FILTER e2e_tests EXCLUDE REGEX "/gpu(_parallel)?\\.test\\.mjs$")  # on a daemon of its own, below
if(QUIRE_SANITIZE)  # a sanitizer's own memory is more than all else
  list(FILTER e2e_tests EXCLUDE REGEX "/memory\\.test\\.mjs$")
endif()
# Run each night alone, on the late device below: they take long, or wait for rates.
set(e2e_nightly bench fleet_load haproxy kv_events_day page_looks page_models page_settings page_views redis_cluster redis_cluster_tls reference resume_elsewhere shared_quotas)
foreach(script ${e2e_tests})
  get_filename_component(name ${script} NAME_WE)
  if(name IN_LIST e2e_nightly AND NOT QUIRE_SANITIZE)
    continue()
  endif()
  add_test(NAME e2e_${name} COMMAND ${NODE} --test ${script} WORKING_DIRECTORY ${e2e_folder})
  set_tests_properties(e2e_${name} PROPERTIES FIXTURES_REQUIRED e2e_packages LABELS "e2e;threads"
    ENVIRONMENT "QUIRE_SOURCE=${PROJECT_SOURCE_DIR};QUIRE_BINARY=$<TARGET_FILE:quire>;QUIRE_DEV=$<TARGET_FILE:quire_dev>;QUIRE_MODEL=${QUIRE_DEMO_MODEL}")
endforeach()
# Hundreds of streams: minutes under ThreadSanitizer, which has seen every pair of threads by then. Once on the best level of
# instructions; with `make long` on every level.
add_test(NAME e2e_invariance_levels COMMAND ${NODE} --test models/invariance.test.mjs WORKING_DIRECTORY ${e2e_folder} CONFIGURATIONS long)
get_test_property(e2e_invariance ENVIRONMENT e2e_environment)
set_tests_properties(e2e_invariance_levels PROPERTIES FIXTURES_REQUIRED e2e_packages LABELS "e2e;long" ENVIRONMENT "${e2e_environment}")
set_tests_properties(e2e_invariance PROPERTIES LABELS e2e ENVIRONMENT "${e2e_environment};QUIRE_LEVELS=once")

# The scripts that compare texts, on a daemon whose device completes late, in an order that tries everything, with two
# steps in flight and poison where results are not ready.
add_executable(quire_deferred ${CMAKE_CURRENT_LIST_DIR}/deferred_executor_for.cpp)
set_target_properties(quire_deferred PROPERTIES OUTPUT_NAME quire-deferred)
quire_late_program(long quire_deferred)
target_link_libraries(quire_deferred PRIVATE quire_main)
# The gate runs one script of each kind of state on it, and each night all run.
set(e2e_deferred adapters drafts invariance lifecycle openai_tools slots streams tiers)
foreach(script ${e2e_tests})
  get_filename_component(name ${script} NAME_WE)
  set(run nightly)
  if(name IN_LIST e2e_deferred)
    set(run long)
  endif()
  add_test(NAME e2e_deferred_${name} COMMAND ${NODE} --test ${script} WORKING_DIRECTORY ${e2e_folder} CONFIGURATIONS ${run})
  set_tests_properties(e2e_deferred_${name} PROPERTIES FIXTURES_REQUIRED e2e_packages LABELS "e2e;${run}"
    ENVIRONMENT "QUIRE_SOURCE=${PROJECT_SOURCE_DIR};QUIRE_BINARY=$<TARGET_FILE:quire_deferred>;QUIRE_DEV=$<TARGET_FILE:quire_dev>;QUIRE_MODEL=${QUIRE_DEMO_MODEL};QUIRE_LEVELS=best")
endforeach()

# A daemon with an emulated GPU: scripts of its own, and general ones, which ask it for less.
add_executable(quire_on_emulated ${CMAKE_CURRENT_LIST_DIR}/emulated_gpu.cpp)
set_target_properties(quire_on_emulated PROPERTIES OUTPUT_NAME quire-emulated)
quire_late_program(long quire_on_emulated)
target_link_libraries(quire_on_emulated PRIVATE quire_main quire_emulated)
foreach(name gpu gpu_parallel)
  add_test(NAME e2e_${name} COMMAND ${NODE} --test models/${name}.test.mjs WORKING_DIRECTORY ${e2e_folder} CONFIGURATIONS long)
  set_tests_properties(e2e_${name} PROPERTIES FIXTURES_REQUIRED e2e_packages ENVIRONMENT "${e2e_environment}")
  set_property(TEST e2e_${name} APPEND PROPERTY ENVIRONMENT "QUIRE_EMULATED=$<TARGET_FILE:quire_on_emulated>")
  # ThreadSanitizer does not follow the emulator's fibres.
  set_tests_properties(e2e_${name} PROPERTIES LABELS "e2e;long")
endforeach()

foreach(script apis/conformance models/invariance daemon/lifecycle models/models apis/openai apis/openai_tools daemon/tiers models/seeing)
  get_filename_component(name ${script} NAME)
  set(run nightly)
  if(name MATCHES "^(invariance|tiers|seeing)$")
    set(run long)
  endif()
  add_test(NAME e2e_emulated_${name} COMMAND ${NODE} --test ${script}.test.mjs WORKING_DIRECTORY ${e2e_folder} CONFIGURATIONS ${run})
  set_tests_properties(e2e_emulated_${name} PROPERTIES FIXTURES_REQUIRED e2e_packages LABELS "e2e;${run}"
    ENVIRONMENT "QUIRE_SOURCE=${PROJECT_SOURCE_DIR};QUIRE_BINARY=$<TARGET_FILE:quire_on_emulated>;QUIRE_DEV=$<TARGET_FILE:quire_dev>;QUIRE_MODEL=${QUIRE_DEMO_MODEL};QUIRE_DEVICE=emulated;QUIRE_EMULATED_MEMORY=2048")
endforeach()

# A daemon that says what a script says, for sessions of coding agents; their packages are a gigabyte, so `make agents` runs them.
add_executable(quire_scripted EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/agents/scripted_executor_for.cpp)
set_target_properties(quire_scripted PROPERTIES OUTPUT_NAME quire-scripted)
target_link_libraries(quire_scripted PRIVATE quire_main)
