# Fuzz targets: one line each at the end. quire_fuzz(name libraries...) builds tests/fuzz/<name>_fuzz.cpp, which defines
# LLVMFuzzerTestOneInput, over the inputs in tests/fuzz/corpus/<name>/.
# By default a driver replays the corpus and a bounded number of seeded mutations of it, as a test of every build with a
# sanitizer, and each night of one without; QUIRE_FUZZ_RUNS in the environment asks for more. With clang 16 and QUIRE_LIBFUZZER (the preset `fuzz`, `make fuzz`) each target is a libFuzzer
# program instead, and all of them are in the target `fuzzers`.
if(QUIRE_LIBFUZZER)
  # Coverage of everything that a target links, not of the target's own file alone.
  target_compile_options(quire_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

add_custom_target(fuzzers)
add_library(quire_fuzz_driver STATIC ${CMAKE_CURRENT_LIST_DIR}/driver.cpp ${CMAKE_CURRENT_LIST_DIR}/mutator.cpp)
target_link_libraries(quire_fuzz_driver PUBLIC quire_options)

function(quire_fuzz name)
  set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  add_executable(fuzz_${name} ${folder}/${name}_fuzz.cpp)
  target_link_libraries(fuzz_${name} PRIVATE ${ARGN})
  add_dependencies(fuzzers fuzz_${name})
  if(QUIRE_LIBFUZZER)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(fuzz_${name} PRIVATE quire_fuzz_driver)
    quire_late_program(nightly fuzz_${name})
    add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${folder}/corpus/${name} ${quire_nightly_only})
    set_tests_properties(fuzz_${name} PROPERTIES LABELS "fuzz;nightly")
  endif()
endfunction()

quire_fuzz(gguf quire_model)
quire_fuzz(safetensors quire_model)
quire_fuzz(hf_config quire_model)
quire_fuzz(config quire_config)
quire_fuzz(tokenizer_json quire_text)
quire_fuzz(chat_template quire_text)
quire_fuzz(tool_calls quire_text)
quire_fuzz(tokenizer quire_text)
quire_fuzz(grammar quire_grammar quire_text)
quire_fuzz(http quire_server)
quire_fuzz(picture quire_server)
quire_fuzz(api quire_server)
target_sources(fuzz_api PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../server/fake_tokenizer.cpp)
