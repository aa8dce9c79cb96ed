#include "sim/report/text_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/report/reports.h"

namespace zerosim {
namespace {

using ::testing::ElementsAre;
using Align = TextTable::Align;

TEST(TextTable, AlignsColumnsAndDropsTrailingSpaces) {
  TextTable table({Align::Left, Align::Right, Align::Left});
  table.add_row({"name", "GiB", "note"});
  table.add_rule();
  table.add_row({"a", "12.50"});
  table.add_heading("a heading that is wider than the whole of the table");
  EXPECT_EQ(table.text(1),
            " name    GiB  note\n"
            " -----------------\n"
            " a     12.50\n"
            " a heading that is wider than the whole of the table\n");
}

TEST(Wrap, BreaksAtSpacesAndIndentsWhatFollows) {
  EXPECT_EQ(wrap("one two three four", 12, "  - "), "  - one two\n    three\n    four\n");
}

TEST(Wrap, CutsAWordThatIsLongerThanALine) {
  EXPECT_EQ(wrap("abcdefghij", 6, "- "), "- abcd\n  efgh\n  ij\n");
  EXPECT_EQ(wrap("x abcdefghij", 6, "- "), "- x\n  abcd\n  efgh\n  ij\n");
}

TEST(Wrap, OfNothingIsAnEmptyLine) {
  EXPECT_EQ(wrap("", 10), "\n");
}

TEST(WrapName, BreaksAfterSeparators) {
  EXPECT_THAT(wrap_name("ds_zero3.json", 14, 3), ElementsAre("ds_zero3.json"));
  EXPECT_THAT(wrap_name("my_long_ds_config.z3.json", 12, 3),
              ElementsAre("my_long_ds_", "config.z3.", "json"));
}

TEST(WrapName, MarksWhatIsCutOff) {
  EXPECT_THAT(wrap_name("abcdefghijklmnopqrstuvwxyz", 8, 2), ElementsAre("abcdefgh", "ijklmn.."));
}

TEST(Grouped, SeparatesThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(6'738'415'616), "6,738,415,616");
  EXPECT_EQ(grouped(-123456), "-123,456");
}

}  // namespace
}  // namespace zerosim
