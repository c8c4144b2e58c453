# frozen_string_literal: true

module Penstock
  # A Regexp for whole names of topics, in the form that means the same everywhere: `^(...)$`.
  #
  # With the classic protocol librdkafka searches names with the C library's extended regular expressions (POSIX). With the
  # protocol "consumer" brokers match whole names with RE2/J. Both know groups, alternatives, brackets, `.` and counts. Neither
  # knows all of Ruby's escapes, such as `\h`. Topics' names consist of 65 characters. So everything that stands for one character
  # is replaced by those of the 65 that Ruby matches. What is left, such as a look-ahead, cannot be expressed.
  # @api private
  class TopicPattern
    CHARACTERS = [*"0".."9", *"A".."Z", "_", *"a".."z", ".", "-"].each(&:freeze).freeze
    BRACKET = /\G\[(?<inner>(?:\\.|\[:\^?\w+:\]|\[\g<inner>\]|[^\[\]\\])*)\]/m
    CLASS = /\G\\(?:[dDwWsShH]|[pP]\{\^?\w+\}|[^A-Za-z0-9])/m
    COUNT = /\G(?:[*+?]|\{(?<least>\d*)(?:(?<comma>,)(?<most>\d*))?\})/
    GROUP = /\G\((?:\?(?:<[A-Za-z_]\w*>|(?<flags>[mix]*(?:-[mix]*)?):)|(?!\?))/
    FLAGS = { "i" => Regexp::IGNORECASE, "x" => Regexp::EXTENDED }.freeze
    # POSIX guarantees no more.
    MOST = 255
    private_constant(*constants(false))

    # @param pattern [Regexp, String]
    # @return [String]
    # @raise [ArgumentError] when the pattern cannot be expressed
    def self.of(pattern)
      pattern = Regexp.new(pattern) if pattern.is_a?(String)
      new(pattern).translated
    rescue RegexpError => e
      raise ArgumentError, "the pattern of topics is invalid: #{Text.printable(e.message)}"
    end

    def initialize(pattern)
      @shown = pattern.inspect
      @source = pattern.source
      @options = pattern.options & (Regexp::IGNORECASE | Regexp::EXTENDED)
      @at = 0
      @depth = 0
    end

    # @return [String]
    def translated
      inner = alternatives(@options)
      cannot("an unmatched )") if @at < @source.size
      "^(#{inner})$"
    end

    private

    def cannot(what) = raise(ArgumentError, "a pattern of topics cannot have #{what}: #{Text.printable(@shown)}")

    # @return [MatchData, nil]
    def take(pattern)
      found = @source.match(pattern, @at)
      @at = found.end(0) if found
      found
    end

    def alternatives(options)
      found = [sequence(options)]
      found << sequence(options) while take(/\G\|/)
      found.join("|")
    end

    # Anchors may stand where the name begins and ends anyway.
    def sequence(options)
      take(/\G(?:\^|\\A)/) if @depth.zero?
      parts = []
      until @at >= @source.size || @source.match?(/\G[|)]/, @at)
        next if (options & Regexp::EXTENDED).positive? && take(/\G(?:\s+|#[^\n]*)/)
        break if @depth.zero? && take(/\G(?:\$|\\[zZ])(?=\||\z)/)

        parts << (atom(options) + count)
      end
      cannot("an empty alternative (write (a|b)? instead of (a|b|))") if parts.empty?
      parts.join
    end

    def atom(options)
      return group(options) if @source.match?(/\G\(/, @at)

      text = (take(BRACKET) || take(CLASS) || take(/\G[^\\\[^$*+?{]/m) || cannot(shown_rest))[0]
      return "." if text == "."

      characters(text, options)
    end

    def group(options)
      found = take(GROUP) || cannot(shown_rest)
      @depth += 1
      inner = alternatives(flags(found[:flags], options))
      @depth -= 1
      take(/\G\)/)
      "(#{inner})"
    end

    def flags(given, options)
      on, off = given.to_s.split("-", 2).map { |letters| bits(letters) }
      (options | on.to_i) & ~off.to_i
    end

    def bits(letters) = FLAGS.sum { |letter, bit| letters.include?(letter) ? bit : 0 }

    # @return [String] for the characters of names that Ruby matches with the text
    def characters(text, options)
      regexp = Regexp.new(text, options & Regexp::IGNORECASE)
      found = CHARACTERS.select { |character| regexp.match?(character) }
      cannot("#{text}, which matches no character of topics' names") if found.empty?
      return "." if found.size == CHARACTERS.size
      return found[0] == "." ? "\\." : found[0] if found.size == 1

      "[#{found.slice_when { |one, other| one.succ != other }.map { |run| run_of(run) }.join}]"
    end

    # A hyphen is the last of CHARACTERS, so it comes last in a bracket.
    def run_of(run) = run.size > 2 ? "#{run.first}-#{run.last}" : run.join

    # Laziness does not matter for whole names.
    def count
      found = take(COUNT) or return ""
      take(/\G\?/) unless found[:least] && !found[:comma]
      cannot("two counts in a row") if @source.match?(COUNT, @at)
      return found[0][0] unless found[:least]

      numbers = [found[:least], found[:most]].compact.map(&:to_i)
      cannot("the count #{found[0]}") if (found[:least] + found[:most].to_s).empty?
      cannot("a count above #{MOST}") if numbers.max > MOST
      "{#{numbers[0]}#{found[:comma]}#{found[:most]}}"
    end

    def shown_rest
      rest = @source[@at..]
      rest[/\A(?:\\.|\(\?<?.|.)/m].to_s
    end
  end
  private_constant :TopicPattern
end
