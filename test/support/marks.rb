# frozen_string_literal: true

# Marks of tests, which decide when the tests run. A mark applies to one test, to the tests whose names match, or to the class:
#
#   slow def test_close_waits_for_its_timeout
#   alone(/share_of_the_gvl/)
#   slow
#   alone slow def test_both # `alone` comes first, because test/run.rb looks for lines that begin with it
#
# A test is `slow` if it waits for real timeouts, or starts many programs. `rake` leaves these tests out, so that it ends within
# 60 s. bin/test runs them, and so does a test file that runs by itself.
#
# A test is `thorough` if it takes many seconds, and something quicker in the gate fails as well for most faults that it finds.
# Only "bin/test --all" and a test file that runs by itself run it.
#
# A test is `alone` if it measures time, processor time or shares of the GVL. Other programs would falsify the measurement, so
# test/run.rb runs these tests at the end, one file at a time. A test that only waits for an event is not `alone`: see Slowness.
module Marks
  TESTS = ENV.fetch("PENSTOCK_TESTS", "all")
  raise "PENSTOCK_TESTS is quick, gate or all, not #{TESTS}" unless %w[quick gate all].include?(TESTS)

  PHASE = ENV.fetch("PENSTOCK_PHASE", nil)
  raise "PENSTOCK_PHASE is together or alone, not #{PHASE}" unless [nil, "", "together", "alone"].include?(PHASE)

  # @param names [Symbol, Regexp]
  # @return [Symbol, Regexp] the same, for another mark
  def slow(names = /./) = mark(:slow, names)

  # @param names [Symbol, Regexp]
  # @return [Symbol, Regexp] the same, for another mark
  def thorough(names = /./) = mark(:thorough, names)

  # @param names [Symbol, Regexp]
  # @return [Symbol, Regexp] the same, for another mark
  def alone(names = /./) = mark(:alone, names)

  # Minitest's: the tests to run.
  def runnable_methods
    all = super
    slow, thorough, alone = %i[slow thorough alone].map { |mark| marked(mark, all) }
    all -= thorough unless TESTS == "all"
    all -= slow if TESTS == "quick"
    case PHASE
    when "together" then all - alone
    when "alone" then all & alone
    else all
    end
  end

  private

  def mark(mark, names)
    ((@marks ||= {})[mark] ||= []) << names
    names
  end

  # @return [Array<String>] those tests among `all`
  def marked(mark, all)
    ((@marks || {})[mark] || []).flat_map do |names|
      found = names.is_a?(Symbol) ? all & [names.name] : all.grep(names)
      raise "no test is called #{names.inspect}, which is marked as #{mark}" if found.empty?

      found
    end
  end
end
