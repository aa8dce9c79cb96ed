#include "validate/csv.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace zerosim {
namespace {

std::vector<std::string> texts(const std::vector<CsvCell>& cells) {
  std::vector<std::string> out;
  for (const CsvCell& cell : cells) out.push_back(cell.text);
  return out;
}

using Texts = std::vector<std::string>;

TEST(Csv, ReadsCellsWithAndWithoutQuotes) {
  const CsvTable table = parse_csv("a,b,c\n1,\"x, \"\"y\"\"\nz\",\"\"\n", "t.csv");
  EXPECT_EQ(table.header.size(), 3U);
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(texts(table.rows[0]), (Texts{"1", "x, \"y\"\nz", ""}));
}

TEST(Csv, KnowsWhereACellBegins) {
  const CsvTable table = parse_csv("a,b\n\"1\n2\",x\n\xC3\xA9t\xC3\xA9,y\n", "t.csv");
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0][1].line, 3);  // after the line end inside quotes
  EXPECT_EQ(table.rows[0][1].column, 4);
  EXPECT_EQ(table.rows[1][1].line, 4);
  EXPECT_EQ(table.rows[1][1].column, 5);  // characters, not bytes
}

TEST(Csv, TakesEitherLineEndAndNoneAtTheEnd) {
  for (const char* text : {"a,b\n1,2\n", "a,b\r\n1,2\r\n", "a,b\n1,2",
                           "\xEF\xBB\xBF"
                           "a,b\n1,2\n"}) {
    const CsvTable table = parse_csv(text, "t.csv");
    EXPECT_EQ(texts(table.header), (Texts{"a", "b"}));
    ASSERT_EQ(table.rows.size(), 1U);
    EXPECT_EQ(texts(table.rows[0]), (Texts{"1", "2"}));
  }
}

template <typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const TraceError& error) {
    return error.what();
  }
  return "no error";
}

std::string message_of_text(const std::string& text) {
  return message_of([&] { (void)parse_csv(text, "t.csv"); });
}

TEST(Csv, RefusesMalformedText) {
  EXPECT_EQ(message_of_text(""), "t.csv:1:1: found nothing, expected names of columns");
  EXPECT_EQ(message_of_text("a,b\n1,\"x\n2,3\n"),
            "t.csv:2:3: found a quote that is never closed, expected a second one");
  EXPECT_EQ(message_of_text("a,b\n1,x\"y\n"),
            "t.csv:2:4: found a quote inside a cell without quotes, expected the whole cell in "
            "quotes and this one doubled");
  EXPECT_EQ(message_of_text("a,b\n1,\"x\"y\n"),
            "t.csv:2:6: found text after a closing quote, expected a comma or the line's end");
  EXPECT_EQ(message_of_text("a,b\n1\n"), "t.csv:2:1: found 1 cells, expected 2 as in line 1");
  EXPECT_EQ(message_of_text("a,b\n1,2,3\n"), "t.csv:2:1: found 3 cells, expected 2 as in line 1");
  EXPECT_EQ(message_of_text("a,b\n\n"), "t.csv:2:1: found 1 cells, expected 2 as in line 1");
  EXPECT_EQ(message_of_text("a,b\r1,2\n"),
            "t.csv:1:4: found a carriage return alone, expected CRLF or LF");
  EXPECT_EQ(message_of_text("a,\n"), "t.csv:1:3: found a column without name, expected one");
  EXPECT_EQ(message_of_text("a,b,a\n"), "t.csv:1:5: found a second column \"a\", expected one");
}

TEST(Csv, NamesTheNearestColumn) {
  const CsvTable table = parse_csv("model,world_sise\nx,8\n", "t.csv");
  EXPECT_EQ(table.column("model"), 0U);
  EXPECT_EQ(message_of([&] { (void)table.column("world_size"); }),
            "t.csv:1:1: found no column \"world_size\", expected it among the 2 columns; did you "
            "mean \"world_sise\"?");
}

TEST(Csv, ReadsNumbersInRange) {
  const CsvTable table = parse_csv("a,b\n2.5,\n1e3,x\n-1,nan\n", "t.csv");
  const CsvRange range{0, 1e6, false};
  EXPECT_EQ(csv_number(table, table.rows[0], 0, range), 2.5);
  EXPECT_EQ(csv_number(table, table.rows[0], 1, range), std::nullopt);
  EXPECT_EQ(csv_number(table, table.rows[1], 0, range), 1000);
  const auto message = [&](std::size_t row, std::size_t cell, const CsvRange& expected) {
    return message_of([&] { (void)csv_number(table, table.rows[row], cell, expected); });
  };
  EXPECT_EQ(message(1, 1, range), "t.csv:3:5: b: found \"x\", expected a number from 0 to 1e+06");
  EXPECT_EQ(message(2, 0, range), "t.csv:4:1: a: found \"-1\", expected a number from 0 to 1e+06");
  EXPECT_EQ(message(2, 1, range), "t.csv:4:4: b: found \"nan\", expected a number from 0 to 1e+06");
  EXPECT_EQ(message(0, 0, {1, 100, true}),
            "t.csv:2:1: a: found \"2.5\", expected a whole number from 1 to 100");
}

TEST(Csv, SaysThatAFileIsMissing) {
  EXPECT_THROW((void)read_csv("/no/such/table.csv"), ConfigError);
}

}  // namespace
}  // namespace zerosim
