"""Where a sentence ends behind an abbreviation: told by what follows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.text.incremental.text import GrowingText
from tests.models.text.reading import prepare

READ = [
    ("We met at 5 p.m. Dinner was cold.", ["We met at five P M.", "Dinner was cold."]),
    ("It opened at 9 a.m. Customers waited.", ["It opened at nine eh M.", "Customers waited."]),
    ("Add milk, etc. Mix well.", ["Add milk, et cetera.", "Mix well."]),
    ("He lives in the U.S. Birds sing there.", ["He lives in the U S.", "Birds sing there."]),
    ("We live on Main St. Traffic is bad.", ["We live on Main Street.", "Traffic is bad."]),
    ("It ranges from -40°C to 120°F. 5-year-old",
     ["It ranges from minus forty degrees Celsius to one hundred and twenty degrees Fahrenheit.",
      "five-year-old"]),
    ("On Mon. the 3rd we met.", ["On Monday the third we met."]),
    ("On Tues. at 5 we left.", ["On Tuesday at five we left."]),
    ("In Jan. it snowed.", ["In January it snowed."]),
    ("My dr. said no.", ["My doctor said no."]),
    ("Dr. Smith paid 3.14 dollars at example.com. Thanks a lot!",
     ["Doctor Smith paid three point one four dollars at example dot com.", "Thanks a lot!"]),
    ("Read Ch. IV first. Then rest.", ["Read Chapter four first.", "Then rest."]),
    ("The shop closes at 6 p.m. Bring cash.", ["The shop closes at six P M.", "Bring cash."]),
    ("The train left at 7:15 a.m. Nobody was late.",
     ["The train left at seven fifteen eh M.", "Nobody was late."]),
    ("The call is at 3 p.m. Eastern time.", ["The call is at three P M Eastern time."]),
    ("We start at 10 a.m. Monday.", ["We start at ten eh M Monday."]),
    ("We eat at 5 p.m. and leave.", ["We eat at five P M and leave."]),
    ("At 5 p.m. Mary left.", ["At five P M Mary left."]),
    ("She came at 5 p.m. Mary left.", ["She came at five P M.", "Mary left."]),
    ("She came at 5 pm. Mary left.", ["She came at five P M.", "Mary left."]),
    ("It ends at 5 pm. sharp.", ["It ends at five P M sharp."]),
    ("Buy eggs, bread, etc. Come home soon.", ["Buy eggs, bread, et cetera.", "Come home soon."]),
    ("Pens, paper, etc. are there.", ["Pens, paper, et cetera are there."]),
    ("Bring cups, plates, etc. I will cook.", ["Bring cups, plates, et cetera.", "I will cook."]),
    ("She moved to the U.S. Her brother stayed.", ["She moved to the U S.", "Her brother stayed."]),
    ("She moved to the U.S. Jobs were plenty.", ["She moved to the U S.", "Jobs were plenty."]),
    ("The U.S. Army won.", ["The U S Army won."]),
    ("He joined the U.S. Air Force.", ["He joined the U S Air Force."]),
    ("The U.S. Geological Survey said so.", ["The U S Geological Survey said so."]),
    ("He works in Washington, D.C. Rain fell all day.",
     ["He works in Washington, D C.", "Rain fell all day."]),
    ("The U.K. Parliament met.", ["The U K Parliament met."]),
    ("They trade with the E.U. Prices fell.", ["They trade with the E U.", "Prices fell."]),
    ("It was built in 300 B.C. Romans lived there.",
     ["It was built in three hundred B C.", "Romans lived there."]),
    ("She has a Ph.D. Students like her.", ["She has a P H D.", "Students like her."]),
    ("We live on Oak St. Cars are loud.", ["We live on Oak Street.", "Cars are loud."]),
    ("I work at 5 Elm Ave. Parking is free.", ["I work at five Elm Avenue.", "Parking is free."]),
    ("They met on Sunset Blvd. Stars were there.",
     ["They met on Sunset Boulevard.", "Stars were there."]),
    ("He lives on 42nd St. Rents are high.",
     ["He lives on forty-second Street.", "Rents are high."]),
    ("We went to St. Louis by train.", ["We went to Saint Louis by train."]),
    ("Mount St. Helens erupted.", ["Mount Saint Helens erupted."]),
    ("He read the Wall St. Journal.", ["He read the Wall Street Journal."]),
    ("We took the bus from Main St. Station.", ["We took the bus from Main Street Station."]),
    ("We saw Dr. Jones. He was kind.", ["We saw Doctor Jones.", "He was kind."]),
    ("Yesterday Dr. Lee came.", ["Yesterday Doctor Lee came."]),
    ("I live on Ocean Dr. Waves are loud.", ["I live on Ocean Drive.", "Waves are loud."]),
    ("I saw the dr. today.", ["I saw the doctor today."]),
    ("Ask your dr. He knows.", ["Ask your doctor.", "He knows."]),
    ("hi mr. smith how are you", ["hi mister smith how are you"]),
    ("On Wed. we rest.", ["On Wednesday we rest."]),
    ("On Thurs. night it rained.", ["On Thursday night it rained."]),
    ("We meet every Fri. Please come.", ["We meet every Friday.", "Please come."]),
    ("We open on Sat. Children are welcome.", ["We open on Saturday.", "Children are welcome."]),
    ("In Feb. it was cold.", ["In February it was cold."]),
    ("By Dec. all was done.", ["By December all was done."]),
    ("It opened in Sept. Schools were full.", ["It opened in September.", "Schools were full."]),
    ("The war ended in Aug. 1945. Peace came.",
     ["The war ended in August nineteen forty-five.", "Peace came."]),
    ("From Jan. to Mar. we ski.", ["From January to March we ski."]),
    ("I met Jan. She is tall.", ["I met Jan.", "She is tall."]),
    ("We sat in the sun. It was hot.", ["We sat in the sun.", "It was hot."]),
    ("J. Smith wrote it.", ["J Smith wrote it."]),
    ("It was written by J. K. Rowling.", ["It was written by J K Rowling."]),
    ("George W. Bush spoke.", ["George W Bush spoke."]),
    ("A novel by H.G. Wells was read.", ["A novel by H G Wells was read."]),
    ("Oranges have vitamin C. Lemons do too.", ["Oranges have vitamin C.", "Lemons do too."]),
    ("Let us try plan B. Mary agreed.", ["Let us try plan B.", "Mary agreed."]),
    ("He got an A in group B. Tom did not.", ["He got an A in group B.", "Tom did not."]),
    ("See No. 5 on the list.", ["See Number five on the list."]),
    ("He said no. 5 people left.", ["He said no.", "five people left."]),
    ("No. You must not.", ["No.", "You must not."]),
    ("no. you must not.", ["no.", "you must not."]),
    ("See vol. II and pt. III.", ["See volume two and part three."]),
    ("Open Vol. I now.", ["Open Volume one now."]),
    ("See fig. 3. It is clear.", ["See figure three.", "It is clear."]),
    ("He is 6 ft. 2 in. tall.", ["He is six feet two tall."]),
    ("The pole is 6 ft. Five men hold it.", ["The pole is six feet.", "Five men hold it."]),
    ("It was 30°C. 12 people fainted.",
     ["It was thirty degrees Celsius.", "twelve people fainted."]),
    ("We ran 5 km. 10 people joined.", ["We ran five kilometers.", "ten people joined."]),
    ("Add 2 tbsp. sugar. Stir.", ["Add two tablespoons sugar.", "Stir."]),
    ("He works at Acme Inc. Business is good.",
     ["He works at Acme Incorporated.", "Business is good."]),
    ("Acme Inc. makes cars.", ["Acme Incorporated makes cars."]),
    ("Martin Luther King Jr. spoke. Crowds came.",
     ["Martin Luther King Junior spoke.", "Crowds came."]),
    ("It was Martin Luther King Jr. Day today.", ["It was Martin Luther King Junior Day today."]),
    ("Use fruit, e.g. Apples or pears.", ["Use fruit, for example Apples or pears."]),
    ("Red vs. Blue was fun.", ["Red versus Blue was fun."]),
    ("It is approx. Half of that.", ["It is approximately Half of that."]),
    ("Smith et al. found it. Others agreed.", ["Smith et al found it.", "Others agreed."]),
    ("My apt. is small.", ["My apartment is small."]),
    ("Call the asst. manager.", ["Call the assistant manager."]),
    ('"We met at 5 p.m. Dinner was cold," he said.',
     ['"We met at five P M. Dinner was cold," he said.']),
    ('He left at 5 p.m. "Good," she said.', ["He left at five P M.", '"Good," she said.']),
    ("Meet at 5 p.m. (Eastern). Bye.", ["Meet at five P M (Eastern).", "Bye."]),
    ("Gen. Lee met Capt. Cook.", ["General Lee met Captain Cook."]),
    ("Sgt. Pepper sang.", ["Sergeant Pepper sang."]),
    ("I am. You are.", ["I am.", "You are."]),
    ("We flew at 5 a.m. NASA called.", ["We flew at five eh M.", "NASA called."]),
    ("The deadline is 5 p.m. EST. Hurry.", ["The deadline is five P M EST.", "Hurry."]),
]  # fmt: skip


def by_letters(text: str) -> list[str]:
    growing = GrowingText()
    return [piece for letter in text for piece in growing.append(letter)] + growing.end()


@pytest.mark.parametrize(("written", "read"), READ, ids=[row[0][:40] for row in READ])
def test_a_sentence_ends_by_what_follows(written: str, read: list[str]) -> None:
    assert [one.text for one in prepare(written)] == read


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from([row[0] for row in READ]), min_size=1, max_size=3).map(" ".join))
def test_a_text_is_read_alike_whole_and_letter_by_letter(text: str) -> None:
    whole = [one.text for one in prepare(text)]
    assert [one.text for piece in by_letters(text) for one in prepare(piece)] == whole


@given(
    st.sampled_from([
        "etc.",
        "p.m.",
        "a.m.",
        "U.S.",
        "Inc.",
        "Jr.",
        "Ave.",
        "Mon.",
        "Jan.",
        "approx.",
        "dr.",
        "mr.",
        "J.",
        "lb.",
    ]),
    st.sampled_from(["we", "the", "river", "dinner", "a", "at", "and", "is"]),
)
def test_a_small_letter_opens_no_sentence(abbreviation: str, word: str) -> None:
    assert len(prepare(f"They saw 5 {abbreviation} {word} then.")) == 1
