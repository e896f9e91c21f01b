# ruff: noqa: RUF001 - signs that look like letters
"""Numbers and signs in every shape: each digit is read once."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.text import normalise
from models.text.characters import clean

SAID = [
    ("It began 2026-06-05T14:30:00Z today.",
     "It began June fifth, twenty twenty-six, fourteen thirty U T C today."),
    ("2024/10/01", "October first, twenty twenty-four"),
    ("C#, F#, the key of C# minor", "C sharp, F sharp, the key of C sharp minor"),
    ("x != y", "x is not equal to y"),
    ("a -> b, a => b; ~/models", "a to b, a to b; tilde slash models"),
    ("10-3=7", "ten minus three equals seven"),
    ("5e-4, 1e6", "five times ten to the power of minus four, one times ten to the power of six"),
    ("10^-3, 0x1F", "ten to the power of minus three, zero X one F"),
    ("1-800-FLOWERS", "one, eight hundred, flowers"),
    ("(020) 7946-0958", "zero two zero, seven nine four six, zero nine five eight"),
    ("Emergency: 911.", "Emergency: nine one one."),
    ("ISO 9001:2015, x86-64", "ISO nine thousand and one, twenty fifteen, x eighty-six sixty-four"),
    ("192.168.1.1:8080",
     "one hundred and ninety-two dot one hundred and sixty-eight dot one dot one "
     "colon eight zero eight zero"),
    ("€1.000,50, ₹2,00,000", "one thousand euros and fifty cents, two hundred thousand rupees"),
    ("2-1/2 cups, 4.5/5 stars, 2/3rds",
     "two and a half cups, four point five out of five stars, two thirds"),
    ("2025-12-31T23:59:59Z",
     "December thirty-first, twenty twenty-five, twenty-three fifty-nine and "
     "fifty-nine seconds U T C"),
    ("2024-02-29T06:05:00+02:00",
     "February twenty-ninth, twenty twenty-four, six oh five U T C plus two"),
    ("2024-02-29T06:05-07:00",
     "February twenty-ninth, twenty twenty-four, six oh five U T C minus seven"),
    ("2026-01-15T08:00:00.250Z",
     "January fifteenth, twenty twenty-six, eight and point two five zero seconds U T C"),
    ("[2026-06-05 14:30:05]", "[June fifth, twenty twenty-six, fourteen thirty and five seconds]"),
    ("20260605T143000Z", "June fifth, twenty twenty-six, fourteen thirty U T C"),
    ("at 2026-06-05 14:30 we met", "at June fifth, twenty twenty-six, fourteen thirty we met"),
    ("2026/3/7", "March seventh, twenty twenty-six"),
    ("31.12.2025", "December thirty-first, twenty twenty-five"),
    ("7.3.2026", "March seventh, twenty twenty-six"),
    ("on 1. 10. 2024", "on October first, twenty twenty-four"),
    ("05-Mar-2024", "March fifth, twenty twenty-four"),
    ("since 06/2026", "since June twenty twenty-six"),
    ("in 2026-06", "in June twenty twenty-six"),
    ("12/25/2023", "December twenty-fifth, twenty twenty-three"),
    ("D# and Bb", "D sharp and Bb"),
    ("an F#m7 chord", "an F sharp minor seven chord"),
    ("written in C#, not C++.", "written in C sharp, not C plus plus."),
    ("A# is B flat", "eh sharp is B flat"),
    ("the C♯ minor prelude in E♭", "the C sharp minor prelude in E flat"),
    ("if x != 0 and y >= 3", "if x is not equal to zero and y is at least three"),
    ("a == b", "a equals b"),
    ("a === b", "a equals b"),
    ("x <= 10", "x is at most ten"),
    ("x<5", "x less than five"),
    ("A => B", "A to B"),
    ("A → B", "A to B"),
    ("File -> Save", "File to Save"),
    ("ls ~/projects", "ls tilde slash projects"),
    ("12-5=7", "twelve minus five equals seven"),
    ("8/2=4", "eight divided by two equals four"),
    ("1/2 + 1/4 = 3/4", "one half plus one quarter equals three quarters"),
    ("6*7=42", "six times seven equals forty-two"),
    ("15 - 6 = 9", "fifteen minus six equals nine"),
    ("2x + 3 = 7", "two x plus three equals seven"),
    ("3x faster", "three times faster"),
    ("6.02e23", "six point zero two times ten to the power of twenty-three"),
    ("1.6e-19 C", "one point six times ten to the power of minus nineteen C"),
    ("2E10", "two times ten to the power of ten"),
    ("3×10^8 m/s", "three times ten to the power of eight meters per second"),
    ("10⁻³", "ten to the power of minus three"),
    ("10¹²", "ten to the power of twelve"),
    ("2^-1", "two to the power of minus one"),
    ("9.8 m/s²", "nine point eight meters per square second"),
    ("0xFF", "zero X F F"),
    ("0x7fff", "zero X seven F F F"),
    ("0b1010", "zero B one zero one zero"),
    ("#FF5733", "hash F F five seven three three"),
    ("#42", "number forty-two"),
    ("1-800-CALL-NOW", "one, eight hundred, call, now"),
    ("1-888-GO-FEDEX", "one, eight eight eight, G O, fedex"),
    ("1-800-555-0199", "one, eight zero zero, five five five, zero one nine nine"),
    ("(800) 555-0199", "eight zero zero, five five five, zero one nine nine"),
    ("020 7946 0958", "zero two zero, seven nine four six, zero nine five eight"),
    ("(0161) 496-0000", "zero one six one, four nine six, zero zero zero zero"),
    ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
    ("+49 (0)30 123456", "plus four nine, zero, three zero, one two three four five six"),
    ("dial 112 now", "dial one one two now"),
    ("Call 999 at once.", "Call nine nine nine at once."),
    ("In an emergency, 911 is free.", "In an emergency, nine one one is free."),
    ("a Porsche 911", "a Porsche nine hundred and eleven"),
    ("911 people", "nine hundred and eleven people"),
    ("ISO 27001:2022", "ISO twenty-seven thousand and one, twenty twenty-two"),
    ("ISO/IEC 27001:2013", "ISO slash IEC twenty-seven thousand and one, twenty thirteen"),
    ("EN 13432:2000", "EN thirteen thousand four hundred and thirty-two, two thousand"),
    ("i7-12700K", "i seven twelve thousand seven hundred K"),
    ("10.0.0.1:22", "ten dot zero dot zero dot one colon twenty-two"),
    ("localhost:3000", "localhost colon three zero zero zero"),
    ("127.0.0.1", "one hundred and twenty-seven dot zero dot zero dot one"),
    ("10.0.0.0/24", "ten dot zero dot zero dot zero slash twenty-four"),
    ("€2.500", "two thousand five hundred euros"),
    ("1.234.567,89 €",
     "one million two hundred and thirty-four thousand five hundred and sixty-seven "
     "euros and eighty-nine cents"),
    ("12.500,00 EUR", "twelve thousand five hundred euros"),
    ("1.234.567", "one million two hundred and thirty-four thousand five hundred and sixty-seven"),
    ("₹1,23,456", "one hundred and twenty-three thousand four hundred and fifty-six rupees"),
    ("1,00,00,000", "ten million"),
    ("₹5 crore", "five crore rupees"),
    ("1'000'000 francs", "one million francs"),
    ("1 000 000 people", "one million people"),
    ("10 000 people", "ten thousand people"),
    ("3-3/4 inches", "three and three quarters inches"),
    ("1-1/2", "one and a half"),
    ("2½ cups", "two and a half cups"),
    ("5 1/4", "five and a quarter"),
    ("3.5/5", "three point five out of five"),
    ("4/5 stars", "four out of five stars"),
    ("9.5/10", "nine point five out of ten"),
    ("0/10", "zero out of ten"),
    ("3/4ths", "three quarters"),
    ("7/10ths", "seven tenths"),
    ("1/3rd", "one third"),
    ("2ND and 3RD", "second and third"),
    ("the 101st", "the one hundred and first"),
    ("12.5%", "twelve point five percent"),
    ("5%-10%", "five percent to ten percent"),
    ("-3.2%", "minus three point two percent"),
    ("22,5 °C", "twenty-two point five degrees Celsius"),
    ("3,5 %", "three point five percent"),
    ("$1.2M", "one point two million dollars"),
    ("£3bn", "three billion pounds"),
    ("$10-$20", "ten to twenty dollars"),
    ("$5M-$10M", "five million dollars to ten million dollars"),
    ("€1.5-2 million", "one point five to two million euros"),
    ("US$3.5bn", "three point five billion U S dollars"),
    ("$.99", "ninety-nine cents"),
    ("C$20", "twenty Canadian dollars"),
    ("HK$500", "five hundred Hong Kong dollars"),
    ("Rs. 500", "five hundred rupees"),
    ("10-15 km", "ten to fifteen kilometers"),
    ("5km-10km", "five kilometers to ten kilometers"),
    ("18–24 months", "eighteen to twenty-four months"),
    ("pp. 12-15", "pages twelve to fifteen"),
    ("1st-3rd", "first to third"),
    ("won 3-2", "won three to two"),
    ("a 21–14 win", "a twenty-one to fourteen win"),
    ("6-4, 7-6 (7-5)", "six to four, seven to six (seven to five)"),
    ("16:9", "sixteen to nine"),
    ("v1.2.3", "version one point two point three"),
    ("2.0.0-beta.1", "two point zero point zero-beta one"),
    ("Python 3.12.1", "Python three point twelve point one"),
    ("1080p", "ten eighty P"),
    ("2h 30m", "two hours thirty minutes"),
    ("1h15m", "one hour fifteen minutes"),
    ("5m 30s", "five minutes thirty seconds"),
    ("60 mph", "sixty miles per hour"),
    ("5 m²", "five square meters"),
    ("100 km/h", "one hundred kilometers per hour"),
    ("3/day", "three per day"),
    ("250 mL", "two hundred and fifty milliliters"),
    ("12345-6789", "one two three four five, six seven eight nine"),
    ("00:34.7", "zero thirty-four point seven"),
    ("00:00:34,740", "zero and thirty-four point seven four zero seconds"),
    ("1,234.56", "one thousand two hundred and thirty-four point five six"),
    (".5 and 0.50", "point five and zero point five zero"),
    ("-40", "minus forty"),
    ("±5", "plus or minus five"),
    ("5±2", "five plus or minus two"),
    ("I <3 you", "I you"),
    ("24/7 support", "twenty-four seven support"),
    ("R2-D2 and C-3PO", "R two-D two and C three PO"),
    ("GPT-4o", "GPT four o"),
    ("COVID-19", "COVID nineteen"),
    ("H2O and CO2", "H two O and CO two"),
    ("a 20-year-old", "a twenty-year-old"),
    ("5-10-15", "five, one zero, one five"),
    ("2023-07-04T09:15:30.5-04:00",
     "July fourth, twenty twenty-three, nine fifteen and thirty point five seconds U "
     "T C minus four"),
    ("Logged at 2026-11-27T20:55Z.",
     "Logged at November twenty-seventh, twenty twenty-six, twenty fifty-five U T C."),
    ("on 15/08/2023", "on August fifteenth, twenty twenty-three"),
    ("valid 01/2024-12/2024", "valid January twenty twenty-four to December twenty twenty-four"),
    ("24.12.1999 was cold", "December twenty-fourth, nineteen ninety-nine was cold"),
    ("the key of F#", "the key of F sharp"),
    ("a G#7 chord", "a G sharp seven chord"),
    ("F# and .NET", "F sharp and dot NET"),
    ("x -> y -> z", "x to y to z"),
    ("a <= b", "a is at most b"),
    ("7-2=5 and 2+2=4", "seven minus two equals five and two plus two equals four"),
    ("100-25=75", "one hundred minus twenty-five equals seventy-five"),
    ("9/3=3", "nine divided by three equals three"),
    ("cd ~/Downloads/music", "cd tilde slash Downloads slash music"),
    ("3e8 m/s", "three times ten to the power of eight meters per second"),
    ("1.5e-10", "one point five times ten to the power of minus ten"),
    ("2^32", "two to the power of thirty-two"),
    ("0xDEADBEEF", "zero X D E eh D B E E F"),
    ("1-877-KARS-4-KIDS", "one, eight seven seven, kars, four, kids"),
    ("1-800-MATTRESS", "one, eight hundred, mattress"),
    ("(01632) 960123", "zero one six three two, nine six zero one two three"),
    ("(030) 901820", "zero three zero, nine zero one eight two zero"),
    ("Police: 999", "Police: nine nine nine"),
    ("Fire and rescue: dial 112.", "Fire and rescue: dial one one two."),
    ("ISO 14001:2015 and ISO 8601",
     "ISO fourteen thousand and one, twenty fifteen and ISO eight thousand six hundred and one"),
    ("ARM64 and x86_64", "ARM sixty-four and x eighty-six sixty-four"),
    ("http://localhost:8080/", "localhost colon eight zero eight zero slash"),
    ("172.16.254.1:443",
     "one hundred and seventy-two dot sixteen dot two hundred and fifty-four dot one "
     "colon four hundred and forty-three"),
    ("€12.345,67", "twelve thousand three hundred and forty-five euros and sixty-seven cents"),
    ("₹12,34,567",
     "one million two hundred and thirty-four thousand five hundred and sixty-seven rupees"),
    ("₹10,00,000.50", "one million rupees and fifty paise"),
    ("CHF 1'250.50", "one thousand two hundred and fifty Swiss francs and fifty rappen"),
    ("1-1/4 cups", "one and a quarter cups"),
    ("3-7/8 inches", "three and seven eighths inches"),
    ("3.8/5 stars", "three point eight out of five stars"),
    ("1/4th", "one quarter"),
    ("2/5ths", "two fifths"),
    ("the 22nd and 33rd", "the twenty-second and thirty-third"),
    ("0.5% to 1.25%", "zero point five percent to one point two five percent"),
    ("$2.75 trillion", "two point seven five trillion dollars"),
    ("¥10,000", "ten thousand yen"),
    ("£1.5m-£2m", "one point five million pounds to two million pounds"),
    ("8-10 hours", "eight to ten hours"),
    ("lost 0-3", "lost zero to three"),
    ("Node 18.17.0", "Node eighteen point seventeen point zero"),
    ("15-20°C", "fifteen to twenty degrees Celsius"),
    ("6.5 L/100km", "six point five L slash one hundred km"),
    ("120/80 mmHg", "one hundred and twenty over eighty mmHg"),
    ("1,000,000+ users", "one million plus users"),
    ("-273.15°C", "minus two hundred and seventy-three point one five degrees Celsius"),
    ("Room 101-B", "Room one hundred and one-B"),
    ("at 7:05:09 pm", "at seven oh five and nine seconds P M"),
    ("1h 30min", "one hour thirty minutes"),
    ("3:45.67", "three forty-five point six seven"),
    ("p < 0.05", "p less than zero point zero five"),
    ("y >= 2x+1", "y is at least two x plus one"),
    ("n=25", "n equals twenty-five"),
    ("1h 05m", "one hour five minutes"),
    ("№ 7 by Acme™", "number seven by Acme trademark"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "said"), SAID, ids=[row[0][:40] for row in SAID])
def test_a_number_is_said_by_its_shape(written: str, said: str) -> None:
    assert normalise(clean(written)) == said


_DIGITS = {
    **{
        word: str(number)
        for words in (
            "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
            " fifteen sixteen seventeen eighteen nineteen",
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
            " thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth",
            "January February March April May June July August September October November"
            " December",
        )
        for number, word in enumerate(words.split(), start=1)
    },
    **{
        word: str(number)
        for words in (
            "twenty thirty forty fifty sixty seventy eighty ninety",
            "twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth",
        )
        for number, word in enumerate(words.split(), start=2)
    },
    "half": "2", "quarter": "4", "hundredth": "1", "thousandth": "1",
}  # fmt: skip


def digits(text: str) -> Counter[str]:
    """Count the digits of a text and of its number words, without zeros, which have no word."""
    text = text.replace(" and a ", " and one ")  # two and a half
    text = re.sub(r"\bsquared\b", "two", text)
    text = re.sub(r"\bcubed\b", "three", text)
    found = Counter(re.findall(r"[1-9]", text))
    for word in re.findall(r"(?!(?<!-)seconds)\b[A-Za-z]+", text):
        for one in (word, word.removesuffix("s"), word.removesuffix("ves") + "f"):
            if one in _DIGITS:
                found.update(_DIGITS[one].replace("0", ""))
                break
    return found


def number(least: int, most: int, form: str = "d") -> st.SearchStrategy[str]:
    return st.integers(least, most).map(lambda value: format(value, form))


def shape(form: str, **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(parts).map(lambda given_parts: form.format(**given_parts))


YEAR, MONTH, DAY = number(1900, 2099), number(1, 12, "02d"), number(13, 28, "02d")
HOUR, SIXTIETH = number(0, 23, "02d"), number(0, 59, "02d")
SECONDS = number(2, 59, "02d")  # "one second" would be told as two figures
FEW, MANY, GROUP = number(1, 99), number(1, 9_999_999, ","), number(0, 999, "03d")
PAIR, FOUR = number(0, 99, "02d"), number(0, 9999, "04d")
DATE = {"y": YEAR, "m": MONTH, "d": DAY}
TIME = {"h": HOUR, "n": SIXTIETH, "s": SIXTIETH}
SHAPES = [
    *(
        shape(form, y=YEAR, m=MONTH, d=DAY, h=HOUR, n=SIXTIETH, s=SECONDS, o=MONTH)
        for form in (
            *("{y}-{m}-{d}", "{y}/{m}/{d}", "{m}/{d}/{y}", "{d}.{m}.{y}"),
            *("{y}-{m}-{d}T{h}:{n}:{s}Z", "{y}-{m}-{d}T{h}:{n}+{o}:30", "{y}-{m}-{d} {h}:{n}:{s}"),
            *("{y}{m}{d}T{h}{n}{s}Z", "{h}:{n}", "{h}:{n}:{s}", "{h}:{n}:{s}.{n}"),
        )
    ),
    *(
        shape(form, a=FEW, b=FEW, c=FEW)
        for form in (
            *("{a}-{b}={c}", "{a}+{b}={c}", "{a}*{b} = {c}", "{a}e{b}", "{a}e-{b}", "{a}^{b}"),
            *("{a}^-{b}", "{a}-{b}", "{a}–{b}%", "{a}:{b}", "{a}.{b}", "-{a}.{b}", "{a} {b}/{c}"),
            *("{a}.{b}/{c}", "{a}-{b}-{c}", "{a}.{b}.{c}", "v{a}.{b}.{c}", "{a}%-{b}%", "#{a}"),
            *("{a}-{b} km", "{a}km-{b}km", "{a}x{b}", "{a}>{b}", "{a}h {b}m 59s", "{a} ± {b}"),
            *("x{a}-{b}", "A{a}-B{b}", "{a}, {b} and {c}", "{a}°C–{b}°C", "{a}¢", "ver. {a}.{b}"),
            *("{a}/day", "{a} km/h", "{a}.{b} kg/m³"),
        )
    ),
    *(
        shape(form, n=MANY, p=PAIR, g=GROUP)
        for form in (
            *("{n}", "{n}.{p}", "${n}.{p}", "-${n}", "€{n}", "${n}-{n}", "${n}.{p}M", "{n} km"),
            *("{n}%", "({n})", "£{n}k", "{n} EUR", "1.{g}.{g},{p} €", "€1.{g},{p}", "₹1,{p},{g}"),
            *("1'{g}'{g}", "1 {g} {g} people"),
        )
    ),
    *(
        shape(form, a=GROUP, b=GROUP, c=FOUR)
        for form in (
            *("{a}-{b}-{c}", "({a}) {b}-{c}", "+1 {a} {b} {c}", "1-800-{b}-{c}", "(020) {c}-{c}"),
            *("{c} {c} {c} {c}", "{c}-{c}", "1{c}-{c}", "call {a}", "1-800-FLOWERS", "0x{c}"),
            "ISO {c}:2015",
        )
    ),
    shape("{a}.{a}.{b}.{b}:{c}", a=number(0, 255), b=number(0, 255), c=number(1, 65535)),
]  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=600)
@given(st.lists(st.one_of(SHAPES), min_size=1, max_size=3))
def test_no_digit_is_lost_and_none_is_read_twice(shapes: list[str]) -> None:
    written = ". Then ".join(shapes)
    said = normalise(clean(written))
    # the base of 5e-4
    assert digits(said.replace("times ten to the power", "")) == digits(written), said


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("0123456789.,:/-€$%°'\" ()+#^=<>~!"), max_size=30))
def test_no_digit_is_lost_among_signs(written: str) -> None:
    said = normalise(clean(written))
    assert digits(said) == digits(written), said
