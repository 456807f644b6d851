#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("quire " QUIRE_VERSION);
    return 0;
  }
  return 2;
}
