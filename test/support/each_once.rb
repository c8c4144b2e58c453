# frozen_string_literal: true

# Assertions that messages arrive once, and in order. Their failures begin with LOST_OR_REPEATED. By this text the runner of the
# tests recognises that Penstock is wrong, and that no second attempt excuses it. So use them only where a busy machine cannot be
# the cause: when the test has read all that is there, not when its time was up.
module EachOnce
  LOST_OR_REPEATED = "LOST OR REPEATED: "
  SHOWN = 3 # messages of each kind that a failure shows

  # @param expected [Array] what identifies each message, in order
  # @param got [Array] the same of the messages that have arrived
  # @param ordered [Boolean] whether the order matters
  # @return [String, nil] what is wrong
  def self.problem(expected, got, ordered: true)
    times = got.tally
    found = { "lost" => expected.reject { |one| times[one] }, "repeated" => times.select { |_, count| count > 1 }.keys,
              "never sent" => times.keys - expected }
    texts = found.filter_map { |what, list| "#{list.size} #{what}, such as #{list.first(SHOWN).inspect}" unless list.empty? }
    at = got.zip(expected).index { |one, other| one != other } if ordered && texts.empty?
    texts << "out of order: #{got[at].inspect} where #{expected[at].inspect} was expected" if at
    texts.join("; ") unless texts.empty?
  end

  # @param expected [Array] what identifies each message, each once
  # @param what [String, nil] which messages
  def assert_each_once(expected, got, what = nil, ordered: true)
    problem = EachOnce.problem(expected, got, ordered:)
    assert_nothing_lost_or_repeated(problem ? [[what, problem].compact.join(": ")] : [])
  end

  # @param problems [Array<String>] each is a message that was lost, repeated, or out of order
  def assert_nothing_lost_or_repeated(problems)
    assert problems.empty?, LOST_OR_REPEATED + problems.join("\n")
  end
end
