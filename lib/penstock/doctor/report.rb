# frozen_string_literal: true

module Penstock
  module Doctor
    # One result of the examination.
    #
    # @!attribute name
    #   @return [String] its subject, such as "ffi"
    # @!attribute status
    #   @return [:ok, :note, :problem]
    # @!attribute value
    #   @return [String]
    # @!attribute advice
    #   @return [String, nil] what to do about a problem
    Fact = Struct.new(:name, :status, :value, :advice) do
      # The text may quote brokers and other programs: it is made printable, on one line, and valid for JSON.
      def initialize(name, status, value, advice)
        super(Text.printable(name), status, Text.printable(value), advice && Text.printable(advice))
      end

      # @return [Fact] without a problem
      def self.ok(name, value) = new(name, :ok, value, nil)

      # @return [Fact] worth knowing, but no problem
      def self.note(name, value) = new(name, :note, value, nil)

      # @return [Fact] a problem, with advice
      def self.problem(name, value, advice) = new(name, :problem, value, advice)

      # @return [Boolean]
      def problem? = status == :problem

      # @return [String] the sentences, on one line
      def to_s = [value.sub(/\.\z/, ""), advice].compact.join(". ")
    end

    # All results of the examination.
    class Report
      MARKS = { ok: "", note: "note", problem: "PROBLEM" }.freeze
      private_constant :MARKS

      # @return [Array<Fact>]
      attr_reader :facts

      # @param facts [Array<Fact>]
      def initialize(facts)
        @facts = facts.freeze
      end

      # @return [Array<Fact>]
      def problems = facts.select(&:problem?)

      # @return [Boolean] there are no problems
      def fine? = problems.empty?

      # @return [String] a line for each fact, and a summary
      def to_s
        width = facts.map { |fact| fact.name.size }.max.to_i
        lines = facts.map { |fact| format("%-7s  %-#{width}s  %s", MARKS.fetch(fact.status), fact.name, fact) }
        [*lines, "", summary].join("\n")
      end

      # @return [Hash{Symbol => Object}] for JSON
      def to_h = { penstock: VERSION, problems: problems.size, facts: facts.map { |fact| fact.to_h.compact } }

      private

      def summary
        { 0 => "nothing is wrong", 1 => "1 problem" }.fetch(problems.size, "#{problems.size} problems")
      end
    end
  end
end
