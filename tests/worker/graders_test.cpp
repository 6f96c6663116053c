// Graders that look for texts, each against a table of completions that a careless one gets wrong.
#include <cstdlib>

#include "tests/worker/grader_cases.h"
#include "worker/model/nfc.h"

namespace allot {
namespace {

// Lower case as Python's: str.lower() of these gives the right side.
TEST(Graders, LowerCaseIsPythons) {
  if (!nfcAvailable()) {
    ASSERT_EQ(std::getenv("ALLOT_CI"), nullptr) << "built without libutf8proc";
    GTEST_SKIP() << "needs a build with libutf8proc (Debian package libutf8proc-dev)";
  }
  for (const auto& [text, low] : std::vector<std::pair<std::string, std::string>>{
           {"\u00c9t\u00c9", "\u00e9t\u00e9"},
           {"\u0130Z", "i\u0307z"},
           {"\u039f\u0394\u039f\u03a3 \u03a3\u03a3", "\u03bf\u03b4\u03bf\u03c2 \u03c3\u03c2"},
           {"\u03a3", "\u03c3"},
           {"A\u03a3.", "a\u03c2."},
           {"A\u03a3'B", "a\u03c3'b"},
           {"\U00010400\377A", "\U00010428\377a"},
           {"STRASSE \u1e9e", "strasse \u00df"}}) {
    EXPECT_EQ(lowerCase(text), low);
  }
  EXPECT_EQ(findGrader("ruler-all")({{"\u00c9t\u00e9"}}, "l'\u00e9T\u00c9"), 1);
}

TEST(Graders, Exact) {
  check("exact",
        {{{"12345"}, " 12345\n", 1},
         {{"12345"}, "12345", 1},
         {{"12345"}, "\t 12345 \r\nQuestion: more", 1},
         {{"12345"}, " 12345\n54321", 1},
         {{"12345"}, "\v\f12345", 1},
         {{"12345 54321"}, " 12345 54321\n", 1},
         {{"12345 54321"}, " 12345  54321\n", 0},
         {{"12345 54321"}, " 54321 12345\n", 0},
         {{"12345 54321"}, " 12345\n54321", 0},
         {{"12345"}, " 123456\n", 0},
         {{"12345"}, " 1234\n", 0},
         {{"12345"}, "\n12345\n", 0},
         {{"12345"}, "", 0},
         {{"12345"}, "  ", 0},
         {{"12345"}, "\n", 0},
         {{"12345"}, "12345.", 0},
         {{"12345"}, "012345", 0},
         {{"12345"}, "12,345", 0},
         {{"12345"}, "The code is 12345", 0},
         {{"12345"}, "12345" + kNul, 0},
         {{"Oslo"}, " oslo\n", 0},
         {{"Oslo"}, "Oslo\n\xff", 1},
         {{"Oslo"}, kNul + "Oslo\n\xff", 0},
         {{"Oslo"}, "Oslo\xff\n", 0},
         {{"Oslo"}, "\xc2\xa0Oslo\n", 0},  // a no-break space is no blank
         {{"Malm\xc3\xb6"}, " Malm\xc3\xb6 ", 1},
         {{"Malm\xc3\xb6"}, " Malmo\xcc\x88 ", 0},  // the same to the eye, other characters
         {{"Oslo", "Bergen"}, "Bergen", 1},
         {{"Oslo", "Bergen"}, "Oslo Bergen", 0},
         {{}, "", 0},
         {{}, "anything", 0},
         {{""}, "", 0},
         {{"a"}, "a\ta", 0}});
}

TEST(Graders, RulerAll) {
  check("ruler-all",
        {{{"1234567"}, " 1234567.", 1},
         {{"1234567"}, "12345678", 1},  // a substring is enough: RULER's rule
         {{"1234567"}, "01234567", 1},
         {{"1234567"}, "1,234,567", 0},
         {{"1234567"}, "123 4567", 0},
         {{"1234567"}, "123456", 0},
         {{"1234567"}, "", 0},
         {{"1234567"}, "1234" + kNul + "567", 0},  // becomes a newline, does not vanish
         {{"1234567"}, "\0011234567\002", 1},
         {{"1234567"}, "1234567 1234567", 1},
         {{"1", "2", "3", "4"}, "4, 3, 2 and 1", 1},
         {{"11", "22", "33", "44"}, "11, 22 and 33", 0.75},
         {{"11", "22", "33", "44"}, "44", 0.25},
         {{"11", "22"}, "1122", 1},
         {{"11", "22"}, "1221", 0.5},
         {{"11", "11"}, "11", 1},
         {{"ABCDE", "FGHIJ"}, "abcde FGHIJ", 1},
         {{"ABCDE", "FGHIJ"}, "VAR ABCDE = 12345", 0.5},
         {{"ABCDE"}, "A B C D E", 0},
         {{"apple", "pineapple"}, "pineapple", 1},  // apple stands in it
         {{"apple", "pineapple"}, "apple", 0.5},
         {{"ice cream"}, "ice\ncream", 0},
         {{"ice cream"}, "ICE CREAM", 1},
         {{"ice cream"}, "ice  cream", 0},
         {{"a\tb"}, "a\tb", 0},  // the tab of the completion becomes a newline
         {{"550e8400-e29b-41d4-a716-446655440000"}, "550E8400-E29B-41D4-A716-446655440000", 1},
         {{"550e8400-e29b-41d4-a716-446655440000"}, "550e8400e29b41d4a716446655440000", 0},
         {{"\xc3\xa9t\xc3\xa9"}, "L'\xc3\xa9t\xc3\xa9", 1},
         {{"\xc3\x89t\xc3\xa9"}, "\xc3\xa9t\xc3\xa9", 1},  // case is Python's
         {{}, "anything", 0},
         {{"x"}, "\xff\xfe x", 1},
         {{"one two", "three"}, "one two three four", 1}});
}

TEST(Graders, RulerPart) {
  check("ruler-part", {{{"France"}, "It is in France.", 1},
                       {{"France"}, "france", 1},
                       {{"FRANCE"}, "France", 1},
                       {{"France"}, "Fran", 0},
                       {{"France"}, "", 0},
                       {{"France"}, "Fr ance", 0},
                       {{"France"}, "Francesca", 1},
                       {{"France"}, "Germany", 0},
                       {{"France", "Germany"}, "Germany", 1},
                       {{"France", "Germany"}, "France and Germany", 1},
                       {{"France", "Germany"}, "Spain", 0},
                       {{"in the 10th century", "10th century"}, "10th century", 1},
                       {{"in the 10th century"}, "the 10th century", 0},
                       {{"10th and 11th centuries"}, "10th\nand 11th centuries", 0},
                       {{"yes"}, "Yes, it was.", 1},
                       {{"yes"}, "eyes", 1},  // RULER's rule again
                       {{"no"}, "unknown", 1},
                       {{"no"}, "Yes", 0},
                       {{"1066"}, "in 1066,", 1},
                       {{"1,066"}, "1066", 0},
                       {{"Saint-L\xc3\xb4"}, "saint-l\xc3\xb4", 1},
                       {{"\"Hamlet\""}, "Hamlet", 0},
                       {{"Hamlet"}, "\"Hamlet\"", 1},
                       {{"Hamlet."}, "Hamlet", 0},
                       {{"a b"}, "a\tb", 0},
                       {{"a b"}, "xa by", 1},
                       {{}, "France", 0},
                       {{"France", "France"}, "France", 1},
                       {{"France"}, kNul + "France" + kNul, 1},
                       {{"France"}, "Fra" + kNul + "nce", 0},
                       {{"Kathmandu"}, std::string(100000, 'x') + "kathmandu", 1},
                       {{"France"}, "\377France\377", 1}});
}

TEST(Graders, SantaNiah) {
  const std::vector<std::string> four = {"1111111", "2222222", "3333333", "4444444"};
  check("santa-niah",
        {{four, "1111111, 2222222, 3333333, and 4444444.", 1},
         {four, "4444444 3333333 2222222 1111111", 1},
         {four, "1111111", 0.25},
         {four, "1111111 2222222", 0.5},
         {four, "1111111 1111111 1111111 1111111 2222222", 0.5},  // unique ones count
         {four, "1111111 2222222 3333333 3333333 4444444", 1},
         {four, "9999999 1111111 2222222 3333333 4444444", 0.75},  // the fifth is not looked at
         {four, "1 2 3 4 1111111 2222222 3333333 4444444", 0},
         {four, "1. 1111111 2. 2222222 3. 3333333", 0.5},  // list numbers are integers, too
         {four, "four numbers: 1111111", 0.25},
         {four, "", 0},
         {four, "none", 0},
         {four, "11111112222222", 0},
         {four, "1111111,2222222,3333333,4444444", 1},
         {four, "1,111,111", 0},
         {four, "1111111.5", 0.25},
         {four, "-1111111", 0.25},
         {four, "0001111111", 0.25},
         {four, "x1111111y", 0.25},
         {four, "1111111\n2222222\n\n3333333\t4444444", 1},
         {four, "111111", 0},
         {four, "1111111" + kNul + "2222222", 0.5},
         {{"7654321"}, "7654321", 1},
         {{"7654321"}, "It is 7654321.", 1},
         {{"7654321"}, "1 2 3 7654321", 1},
         {{"7654321"}, "1 2 3 4 7654321", 0},
         {{"7654321", "7654321"}, "7654321", 1},  // a set
         {{"5", "6"}, "5 7 8 6", 1},
         {{"0"}, "000", 1},
         {{}, "1111111", 0},
         {{"1111111", "2222222"}, "\xff 1111111 \xfe", 0.5},
         {four, std::string(100000, '1'), 0}});
}

TEST(Graders, SantaFwe) {
  const std::vector<std::string> three = {"abcdef", "ghijkl", "mnopqr"};
  check("santa-fwe", {{three, "abcdef ghijkl mnopqr", 1},
                      {three, "mnopqr, ghijkl, and abcdef.", 1},
                      {three, "ABCDEF Ghijkl mNOPQR", 1},
                      {three, "abcdef", 1.0 / 3},
                      {three, "abcdef abcdef abcdef", 1.0 / 3},
                      {three, "abcdef ghijkl", 2.0 / 3},
                      {three, "abcdefghijklmnopqr", 0},  // words, not substrings
                      {three, "abcdefg", 0},
                      {three, "xabcdef", 0},
                      {three, "abcde f", 0},
                      {three, "'abcdef' \"ghijkl\" `mnopqr`", 1},
                      {three, "1. abcdef\n2. ghijkl\n3. mnopqr", 1},
                      {three, "1.abcdef,2.ghijkl;3.mnopqr", 1},
                      {three, "abcdef,ghijkl,mnopqr", 1},
                      {three, "abcdef-ghijkl/mnopqr", 1},
                      {three, "**abcdef**, **ghijkl**", 2.0 / 3},
                      {three, "abcdef_ghijkl", 2.0 / 3},
                      {three, "abcdef1", 0},
                      {three, "", 0},
                      {three, "   \n", 0},
                      {three, "... abcdef ... ghijkl ...", 2.0 / 3},
                      {three, "stuvwx yzabcd efghij", 0},
                      {three, "stuvwx abcdef yzabcd ghijkl mnopqr", 1},  // no limit on words
                      {three, "abcdef" + kNul + "ghijkl", 2.0 / 3},
                      {three, "\377abcdef\377", 1.0 / 3},
                      {three, "abcdef\tghijkl\rmnopqr", 1},
                      {{"abcdef"}, "abcdef", 1},
                      {{"ABCDEF"}, "abcdef", 1},
                      {{"abcdef", "abcdef"}, "abcdef", 1},
                      {{}, "abcdef", 0},
                      {{"abc", "abcdef"}, "abcdef", 0.5},
                      {three, "The words are: abcdef (twice), ghijkl", 2.0 / 3}});
}

TEST(Graders, SantaSubstring) {
  check("santa-substring", {{{"France"}, "france.", 1},
                            {{"France"}, "It is France", 1},
                            {{"France"}, "FRANCE", 1},
                            {{"France"}, "Germany", 0},
                            {{"France", "Germany"}, "Germany", 0},  // the gold answer is the first
                            {{"France", "Germany"}, "Germany, France", 1},
                            {{"France"}, "", 0},
                            {{"France"}, "Fra nce", 0},
                            {{"France"}, "Fra\nnce", 0},
                            {{"France"}, "Francesco", 1},
                            {{"the France"}, "France", 0},
                            {{"10th century"}, "In the 10th Century", 1},
                            {{"10th century"}, "tenth century", 0},
                            {{"10th century"}, "10th-century", 0},
                            {{"4"}, "14", 1},
                            {{"14"}, "4", 0},
                            {{"no"}, "I do not know", 1},
                            {{"yes"}, "no", 0},
                            {{"a\tb"}, "A\tB", 1},  // nothing is replaced here
                            {{"a\nb"}, "a\nb", 1},
                            {{"a b"}, "a  b", 0},
                            {{"Malm\xc3\xb6"}, "MALM\xc3\xb6", 1},
                            {{"Malm\xc3\x96"}, "malm\xc3\xb6", 1},
                            {{"U.S."}, "the u.s. army", 1},
                            {{"U.S."}, "US", 0},
                            {{}, "France", 0},
                            {{"(1999)"}, "in (1999)", 1},
                            {{"O'Neill"}, "o'neill", 1},
                            {{"O'Neill"}, "O\xe2\x80\x99Neill", 0},
                            {{"x"}, std::string(100000, 'y') + "X", 1},
                            {{"x"}, kNul + "x", 1},
                            {{"France"}, "\377France", 1}});
}

TEST(Graders, ContainsAllAndAny) {
  struct Both {
    std::vector<std::string> references;
    std::string completion;
    double all, any;
  };
  const std::vector<Both> cases = {{{"a1"}, "a1", 1, 1},
                                   {{"a1"}, "A1", 1, 1},
                                   {{"A1"}, "a1", 1, 1},
                                   {{"a1"}, "xa1y", 1, 1},
                                   {{"a1"}, "a 1", 0, 0},
                                   {{"a1"}, "", 0, 0},
                                   {{"a1"}, " \n", 0, 0},
                                   {{"a1", "b2"}, "a1 b2", 1, 1},
                                   {{"a1", "b2"}, "b2 a1", 1, 1},
                                   {{"a1", "b2"}, "a1", 0, 1},  // all is all, not a share
                                   {{"a1", "b2"}, "b2", 0, 1},
                                   {{"a1", "b2"}, "c3", 0, 0},
                                   {{"a1", "b2", "c3"}, "a1 b2", 0, 1},
                                   {{"a1", "b2", "c3"}, "c3b2a1", 1, 1},
                                   {{"a1", "a1"}, "a1", 1, 1},
                                   {{"a1", "a12"}, "a12", 1, 1},
                                   {{"a1", "a12"}, "a1", 0, 1},
                                   {{"a b"}, "a\nb", 0, 0},
                                   {{"a b"}, "a  b", 0, 0},
                                   {{"a\nb"}, "A\nB", 1, 1},
                                   {{"a\tb"}, "a\tb", 1, 1},
                                   {{}, "", 0, 0},
                                   {{}, "a", 0, 0},
                                   {{"42"}, "The answer is 42.", 1, 1},
                                   {{"42"}, "142", 1, 1},
                                   {{"4.2"}, "402", 0, 0},  // no pattern
                                   {{".*"}, "anything", 0, 0},
                                   {{"\xc3\xa9"}, "caf\xc3\xa9", 1, 1},
                                   {{"\xc3\x89"}, "caf\xc3\xa9", 1, 1},
                                   {{"x"}, kNul + "X", 1, 1},
                                   {{"x"}, "\xff\xfe", 0, 0},
                                   {{"x", "y"}, std::string(100000, 'x'), 0, 1},
                                   {{"a1", "b2"}, "a1\n\n\nb2", 1, 1}};
  std::vector<Case> all, any;
  for (const Both& c : cases) {
    all.push_back({c.references, c.completion, c.all});
    any.push_back({c.references, c.completion, c.any});
  }
  check("contains-all", all);
  check("contains-any", any);
}

}  // namespace
}  // namespace allot
