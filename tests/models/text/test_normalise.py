# ruff: noqa: RUF001 - signs that look like letters
"""What is said for what is written."""

import re
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text import TextError, normalise
from models.text.characters import clean

SAID = [
    ("3×4=12", "three times four equals twelve"),
    ("2x3x4 = 24", "two times three times four equals twenty-four"),
    ("a 3×4 board", "a three by four board"),
    ("Tel.: 555-1234", "Telephone: five five five, one two three four"),
    ("tel. (030) 123", "telephone (zero three zero) one hundred and twenty-three"),
    # plain words keep their case and punctuation
    ("Hello, World! It's (quite) well-known; isn't it?", None),
    ('She said: "No -- never!"', None),
    # numbers
    ("0 and 7 and 42", "zero and seven and forty-two"),
    ("2,500 of 1,234,567", "two thousand five hundred of one million two hundred and thirty-four "
        "thousand five hundred and sixty-seven"),
    ("3.14, .75 and 0.05", "three point one four, point seven five and zero point zero five"),
    ("007", "zero zero seven"),
    ("12345678901234567", "one two three four five six seven eight nine zero one two three four "
        "five six seven"),
    ("-5 and 5 - 3", "minus five and five minus three"),
    ("10-20 or 10–20", "ten to twenty or ten to twenty"),
    ("1,2,3", "one, two, three"),
    ("5M users, 20k", "five million users, twenty thousand"),
    ("B-52, MP3 and 3D", "B fifty-two, MP three and three D"),
    ("Version 2.0.1", "Version two point zero point one"),
    ("v2.0", "version two point zero"),
    ("192.168.0.1", "one hundred and ninety-two dot one hundred and sixty-eight dot zero dot one"),
    ("http://a.b/1² and www.a1².com", "a dot b slash one and W W W dot a one dot com"),
    ("a@1².com, http://².a", "a at one dot com, dot a"),
    # ordinals and fractions
    ("1st, 2nd, 3rd, 5th, 21st", "first, second, third, fifth, twenty-first"),
    ("the 1,000th", "the one thousandth"),
    ("1/2, 3/4, 2/3", "one half, three quarters, two thirds"),
    ("2 1/2 cups, 2½ cups", "two and a half cups, two and a half cups"),
    ("8/10 and 50/50", "eight out of ten and fifty fifty"),
    ("24/7", "twenty-four seven"),
    ("3/40", "three over forty"),
    # sizes, and a quote behind a number
    ("12' x 10'", "twelve feet by ten feet"),
    ('5" x 7" or 27" monitor', "five inches by seven inches or twenty-seven inch monitor"),
    ('3/8" bolt, 2 1/2" pipe', "three eighths inch bolt, two and a half inch pipe"),
    ('It is 6" long, 5\' tall, 1" wide', "It is six inches long, five feet tall, one inch wide"),
    ('"I want 12" and "maybe 13" too', '"I want twelve" and "maybe thirteen" too'),
    ('A 55" TV and a 1/4" jack', "A fifty-five inch TV and a one quarter inch jack"),
    ('He is "only 5" now', 'He is "only five" now'),
    ("12 ft x 10 ft", "twelve feet by ten feet"),
    # places in books
    ("Psalm 23:1-3, John 3:16", "Psalm twenty-three, one to three, John three sixteen"),
    ("Psalm 119:105", "Psalm one hundred and nineteen, one hundred and five"),
    ("Gen. 1:1, Matt 5:3", "Genesis one, one, Matthew five, three"),
    ("Gen. Smith and Col. 5", "General Smith and Colonel five"),
    ("See l. 3 and ll. 4-6, ex. 2", "See line three and lines four to six, example two"),
    ("ll. 12f. are", "lines twelve and following are"),
    ("p. 20ff. are", "page twenty and following are"),
    # kings and queens
    ("Henry V met Elizabeth I of England", "Henry the fifth met Elizabeth the first of England"),
    ("James V. Smith and Henry I know", "James V Smith and Henry I know"),
    # weeks and quarters
    ("2025-W03 to 2025-W04-2", "week three, twenty twenty-five to Tuesday of week four, "
        "twenty twenty-five"),
    ("2025W031", "Monday of week three, twenty twenty-five"),
    ("2024-Q3", "Q three twenty twenty-four"),
    # chemistry
    ("Ca(OH)2 and Al2(SO4)3", "Ca OH two and Al two SO four three"),
    ("(NH4)2SO4", "NH four two SO four"),
    ("760 mmHg", "seven hundred and sixty millimeters of mercury"),
    ("3.5 mmol/L", "three point five millimoles per liter"),
    # versions and files
    (">=3.11,<4", "is at least three point one one, less than four"),
    ("notes.txt, C:\\a.py", "notes dot txt, C colon backslash a dot py"),
    ("#A-1029 and #5", "number A one thousand and twenty-nine and number five"),
    ("~10 min, ~$5", "about ten minutes, about five dollars"),
    ("the value <3 is, I <3 you", "the value less than three is, I you"),
    ("$1,50 and $1,500", "one dollar and fifty cents and one thousand five hundred dollars"),
    ("4.8★, 13,99 $", "four point eight stars, thirteen dollars and ninety-nine cents"),
    # money
    ("$42.50", "forty-two dollars and fifty cents"),
    ("$1, $1.01 and $0.99", "one dollar, one dollar and one cent and ninety-nine cents"),
    ("It cost $5.", "It cost five dollars."),
    ("£3.5 million or €20", "three point five million pounds or twenty euros"),
    ("$1.5bn, $20k", "one point five billion dollars, twenty thousand dollars"),
    ("-$5", "minus five dollars"),
    ("$5-10", "five to ten dollars"),
    ("$5/hour", "five dollars per hour"),
    ("20 EUR, USD 30", "twenty euros, thirty U S dollars"),
    ("€2,50", "two euros and fifty cents"),
    ("$1,200/mo.", "one thousand two hundred dollars per month."),
    ("50¢", "fifty cents"),
    # percentages
    ("12%, 5.5 %", "twelve percent, five point five percent"),
    ("10-20%", "ten to twenty percent"),
    # dates
    ("3/4/2024", "March fourth, twenty twenty-four"),
    ("31/12/1999", "December thirty-first, nineteen ninety-nine"),
    ("12/2/91", "December second, nineteen ninety-one"),
    ("2024-03-04", "March fourth, twenty twenty-four"),
    ("January 5, 2021", "January fifth, twenty twenty-one"),
    ("Jan. 5th, 2021.", "January fifth, twenty twenty-one."),
    ("the 4th of July 2021", "the fourth of July, twenty twenty-one"),
    ("on 5 January", "on the fifth of January"),
    ("Sept. 1982", "September nineteen eighty-two"),
    ("Mar 3-5", "March third to fifth"),
    ("Fri., Dec. 25", "Friday, December twenty-fifth"),
    ("in 1984 and 2005", "in nineteen eighty-four and two thousand and five"),
    ("1939-1945", "nineteen thirty-nine to nineteen forty-five"),
    ("the 1990s and the '90s", "the nineteen nineties and the nineties"),
    ("2008-09", "two thousand and eight to oh nine"),
    ("Mon-Fri", "Monday to Friday"),
    ("03/04", "zero three slash zero four"),
    ("class of '05", "class of oh five"),
    ("13/45/2020", "thirteen slash forty-five slash two thousand and twenty"),
    # times
    ("10:30 am", "ten thirty eh M"),
    ("3pm, 10:05 p.m. sharp", "three P M, ten oh five P M sharp"),
    ("At 5 p.m. The end.", "At five P M. The end."),
    ("12:00 and 14:00", "twelve o'clock and fourteen hundred hours"),
    ("10:05:03", "ten oh five and three seconds"),
    ("9-5pm, 9:00-17:00", "nine to five P M, nine o'clock to seventeen hundred hours"),
    ("3:1", "three to one"),
    # units
    ("72 kg, 1 kg", "seventy-two kilograms, one kilogram"),
    ("5 km in 20 min at 15 km/h", "five kilometers in twenty minutes at fifteen kilometers per "
        "hour"),
    ("-5°C or 23 °F", "minus five degrees Celsius or twenty-three degrees Fahrenheit"),
    ("16GB, 2.4 GHz", "sixteen gigabytes, two point four gigahertz"),
    ("5 m², 3 kg/m3", "five square meters, three kilograms per cubic meter"),
    ("5'10\", 6 ft 2 in", "five feet ten, six feet two"),
    ("a 5-km run", "a five kilometer run"),
    ("10 lbs. of it, 5 ft.", "ten pounds of it, five feet."),
    ("20 µm and 10 Ω", "twenty micrometers and ten ohms"),
    # telephone numbers and codes
    ("555-123-4567", "five five five, one two three, four five six seven"),
    ("(212) 555-0199", "two one two, five five five, zero one nine nine"),
    ("+1 800 555 0100", "plus one, eight zero zero, five five five, zero one zero zero"),
    ("call 911", "call nine one one"),
    ("123-45-6789", "one two three, four five, six seven eight nine"),
    # addresses
    ("me@site.com,", "me at site dot com,"),
    ("https://example.com/a", "example dot com slash a"),
    ("see example.com.", "see example dot com."),
    ("(www.foo.io/b-c?x=1)", "(W W W dot foo dot I O slash b dash c question mark x equals one)"),
    ("@jack #winning", "at jack hashtag winning"),
    # abbreviations
    ("Dr. Smith, Mr. and Mrs. Jones", "Doctor Smith, Mister and Missus Jones"),
    ("St. Paul on Main St. today", "Saint Paul on Main Street today"),
    ("on Oak St. She left", "on Oak Street. She left"),
    ("e.g. this, i.e. that, etc.", "for example this, that is that, et cetera."),
    ("the U.S. Army, the U.S. It is", "the U S Army, the U S. It is"),
    ("J. R. R. Tolkien", "J R R Tolkien"),
    ("No. 5, pp. 3-4, vol. 2", "Number five, pages three to four, volume two"),
    ("to the max. Max. Then", "to the max. Max. Then"),
    ("5 Elm Ave. NW, Washington, D.C. 20500", "five Elm Avenue NW, Washington, D C twenty thousand "
        "five hundred"),
    ("w/o it", "without it"),
    ("World War II, Henry VIII, Part IX", "World War two, Henry the eighth, Part nine"),
    # symbols and layout
    ("AT&T, cats & dogs", "AT and T, cats and dogs"),
    ("3 + 4 = 7", "three plus four equals seven"),
    ("and/or", "and slash or"),
    ("a @ b, C++", "a at b, C plus plus"),
    ("5 x 3, 1920x1080, 2x", "five times three, nineteen twenty by one thousand and eighty, two "
        "times"),
    ("2^10, 10⁵, x²", "two to the power of ten, ten to the power of five, x squared"),
    ("~50 and <5", "about fifty and less than five"),
    ("#1", "number one"),
    ("**bold** _it_ `code` <b>hi</b>", "bold it code hi"),
    ("π is α", "pi is alpha"),
    ("hi 😀 there :-)", "hi there"),
    ("１２ ＡＢ", "twelve AB"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "said"), SAID, ids=[row[0][:40] for row in SAID])
def test_a_written_form_is_said_in_words_or_left_as_it_is(written: str, said: str | None) -> None:
    assert normalise(clean(written)) == (written if said is None else said)


@given(st.text(st.sampled_from("0123456789.,:/-$€%°'\" akmMxXthsdp.@#+()[]\nIV"), max_size=60))
def test_no_digit_and_no_sign_is_left(written: str) -> None:
    assert not re.search(r"[\d$€%°@#+/_]", normalise(clean(written)))


@given(st.text(max_size=60))
def test_any_text_is_cleaned_or_refused(written: str) -> None:
    try:
        cleaned = clean(written)
    except TextError:
        return
    assert not re.search(r"\d", normalise(cleaned))


@given(st.lists(st.text(ascii_lowercase, min_size=2, max_size=8), max_size=8).map(" ".join))
def test_lower_case_words_stay(words: str) -> None:
    if not re.search(r"\b(vs)\b", words):
        assert normalise(words) == words


@given(
    st.text(alphabet="a1²³½٣①Ⅷ./:@#$€%-+,^~ ", max_size=30),
    st.sampled_from(["", "http://", "www.", "a@", "v"]),
)
def test_no_sign_that_resembles_a_digit_fails(text: str, prefix: str) -> None:
    assert isinstance(normalise(clean(prefix + text)), str)
