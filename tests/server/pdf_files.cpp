#include "tests/server/pdf_files.h"

#include <fmt/core.h>

namespace quire::test {

namespace fs = std::filesystem;

std::string pdf_of(const std::vector<std::string>& texts) {
  std::string kids;
  for (std::size_t i = 0; i < texts.size(); ++i)
    kids += fmt::format("{} 0 R ", 4 + 2 * i);
  std::vector<std::string> objects = {
      "<< /Type /Catalog /Pages 2 0 R >>",
      fmt::format("<< /Type /Pages /Kids [{}] /Count {} >>", kids, texts.size()),
      "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    objects.push_back(
        fmt::format("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents {} 0 R /Resources << /Font << /F 3 "
                    "0 R >> >> >>",
                    5 + 2 * i));
    const std::string content = fmt::format("BT /F 20 Tf 10 40 Td ({}) Tj ET", texts[i]);
    objects.push_back(fmt::format("<< /Length {} >>\nstream\n{}\nendstream", content.size(), content));
  }
  std::string file = "%PDF-1.4\n";
  std::string table = fmt::format("xref\n0 {}\n0000000000 65535 f \n", objects.size() + 1);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    table += fmt::format("{:010} 00000 n \n", file.size());
    file += fmt::format("{} 0 obj\n{}\nendobj\n", i + 1, objects[i]);
  }
  const std::size_t begin = file.size();
  return file + table +
         fmt::format("trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{}\n%%EOF\n", objects.size() + 1, begin);
}

void PdfPrograms::write(const std::string& name, const std::string& lines) const {
  folder_.write(name, "#!/bin/sh\n" + lines);
  fs::permissions(folder_ / name, fs::perms::owner_all);
}

void PdfPrograms::write_results(const std::string& text, const std::vector<std::string>& pages) const {
  folder_.write("text", text);
  std::string all;
  for (const std::string& page : pages)
    all += page;
  folder_.write("pages", all);
  write("pdftotext", "exec /bin/cat " + (folder_ / "text").string() + "\n");
  write("pdftoppm", "exec /bin/cat " + (folder_ / "pages").string() + "\n");
}

}  // namespace quire::test
