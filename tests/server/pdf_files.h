// PDF files that tests write, and stand-ins for the programs that read them. One thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace quire::test {

// A page for each text, in Helvetica.
std::string pdf_of(const std::vector<std::string>& texts);

// A folder with the programs pdftotext and pdftoppm as shell scripts.
class PdfPrograms {
 public:
  const std::filesystem::path& folder() const { return folder_.path(); }
  // Writes the program `name` with these lines for a shell.
  void write(const std::string& name, const std::string& lines) const;
  // pdftotext writes the text, and pdftoppm these files, one behind the other.
  void write_results(const std::string& text, const std::vector<std::string>& pages) const;

 private:
  TemporaryFolder folder_;
};

}  // namespace quire::test
