# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require_relative "../../bench/session"

# bin/bench, its scenarios, and the code that runs them.
class BenchTest < PenstockTest
  FAKE = File.expand_path("../support/fake_peer.rb", __dir__)
  COMMAND = File.join(Bench::ROOT, "bin/bench")

  # A scenario whose figures the test sets. bin/bench does not list it.
  class Fake < Bench::Scenario
    Bench::Scenario.all.delete(scenario_name)
    title "A test"
    about "Nothing."
    table "rate", "messages/s", better: :more
    bar 0.5, case: "few", side: "Slow"
    bar 0.5, case: "few", of_case: "many", side: "Slow"
    guard "few"

    def cases = { "few" => 2, "many" => 4 }

    def sides(messages) = peers("batch", { "C" => ["fake"], "Slow" => %w[fake --slow], "Gone" => ["not here"] }, messages:)

    def figures(round) = { "rate" => @rates.shift * round[:delivered] }

    attr_writer :rates # of the coming rounds
  end

  # A scenario with long rounds, which limits their number.
  class Slow < Bench::Scenario
    Bench::Scenario.all.delete(scenario_name)
    rounds 2
  end

  def setup
    super
    @all = Bench::Peers.instance_variable_get(:@peers).dup
    Bench::Peers.add("fake") { [RbConfig.ruby, FAKE, "is good"] }
    Bench::Peers.add("not here", why_not: -> { "it is elsewhere" }) { raise "never started" }
  end

  def teardown
    Bench::Peers.instance_variable_set(:@peers, @all)
    super
  end

  # ---- the runner ----

  # Test files that run at the same time share the compiled programs.
  def test_several_processes_compile_and_start_the_same_program
    Dir.mktmpdir do |directory|
      source = File.join(directory, "several_#{Process.pid}.c")
      File.write(source, "int main(void) { return 0; }\n")
      children = Array.new(6) { fork { exit!(system(Bench.compile(source)) || false) } }
      assert_equal [true] * 6, children.map { |child| Process.wait2(child).last.success? }
    end
  ensure
    FileUtils.rm_f(Dir[File.join(Bench::ROOT, "tmp/bench/several_*")])
  end

  def test_sides_take_turns_and_their_figures_are_kept_apart
    # The order of rounds is C, Slow, C, Slow, C, Slow. A round has 2 messages, so each figure is twice the rate.
    result = run_fake([10, 1, 30, 3, 20, 2], rounds: 3, only: ["few"])
    figures = result.table("rate").figure("few", "C"), result.table("rate").figure("few", "Slow")
    assert_equal([[20, 60, 40], [2, 6, 4]], figures.map { |figure| figure["rounds"] })
    assert_in_delta 0.1, result.table("rate").ratio("few", "Slow")
  end

  def test_an_unavailable_side_is_left_out_with_the_reason
    result = run_fake([1] * 4, rounds: 2, only: ["few"])
    assert_equal({ "Gone" => "it is elsewhere" }, result.left_out)
    assert_equal %w[C Slow], result.table("rate").sides
  end

  slow def test_bars_are_evaluated_only_for_cases_that_ran_on_a_real_kafka
    assert_equal([false], run_fake([4, 1], rounds: 1, only: ["few"]).bars.map { |bar| bar["met"] })
    assert_equal 2, run_fake([1] * 4, rounds: 1).bars.size
    assert_empty run_fake([1] * 4, rounds: 1, cluster: Bench::Runner::EMBEDDED).bars
  end

  def test_a_scenario_may_limit_the_number_of_rounds
    rounds = [1, 5].map { |count| Bench::Runner.new(Slow, "nowhere:1", "a cluster", rounds: count, others: []).rounds }
    assert_equal [1, 2], rounds
  end

  def test_each_scenario_has_a_description_and_its_bars_and_guards_name_its_own_cases_and_tables
    Bench::Scenario.all.each_value do |scenario|
      cases = scenario.new("nowhere:1").cases
      refute_empty scenario.title
      refute_empty scenario.about
      refute_empty scenario.tables
      named = scenario.bars.flat_map { |bar| bar.values_at(:case, :of_case).compact } + scenario.guarded
      assert_empty named - cases.keys, scenario.name
      assert_empty scenario.bars.map { |bar| bar[:table] } - scenario.tables.keys, scenario.name
    end
  end

  # ---- the guard ----

  def test_a_ratio_that_dropped_is_measured_again_and_passes_if_it_recovers
    attempts = []
    compared = compare_again(0.5) do |name, attempt|
      attempts << [name, attempt]
      result_of(0.95)
    end
    assert_predicate compared, :ok?
    assert_equal [["fake", 2]], attempts
  end

  def test_a_ratio_that_drops_in_every_attempt_fails
    attempts = []
    compared = compare_again(0.5) { |_, attempt| result_of(0.5).tap { attempts << attempt } }
    refute_predicate compared, :ok?
    assert_equal [2, 3], attempts
  end

  # ---- the command ----

  def test_an_unknown_scenario_raises_with_the_names_of_all_scenarios
    _, errors, status = command("nosuch")
    assert_equal 1, status.exitstatus
    Bench::Scenario.all.each_key { |name| assert_includes errors, name }
  end

  def test_list_prints_every_scenario
    output, = command("list")
    assert_equal Bench::Scenario.all.keys, output.scan(/^(\S+): /).flatten
  end

  thorough slow def test_a_scenario_prints_a_table_and_writes_its_figures_and_picture_for_the_report
    Dir.mktmpdir do |directory|
      output, errors, status = command("transactions", "--rounds", "1", "--peers", "none", "--json", "--results", directory)
      assert status.success?, errors
      assert_match(/^Transactions \(transactions; embedded cluster, /, output)
      assert_equal "transactions", JSON.parse(output.lines.grep(/\A{/).first)["scenario"]
      assert_equal %w[transactions.json transactions.svg], Dir.children(File.join(directory, "embedded")).sort
      page, = command("report", "--results", directory)
      assert_match(/<svg.*Transactions/m, File.read(page.chomp))
    end
  end

  private

  def run_fake(rates, rounds:, only: nil, cluster: "a cluster")
    runner = Bench::Runner.new(Fake, "nowhere:1", cluster, rounds:, others: [], only:)
    runner.instance_variable_get(:@scenario).rates = rates
    runner.run
  end

  def result_of(ratio)
    rows = { "few" => { "C" => [100], "Penstock" => [100 * ratio] } }
    Bench::Result.build(scenario: "fake", title: "", about: "", cluster: "embedded cluster", environment: {}, settings: {},
                        rounds: 1, sides: { "C" => "", "Penstock" => "" }, reference: "C",
                        tables: [{ name: "rate", unit: "messages/s", better: "more", rows: }])
  end

  def compare_again(first, &block)
    committed = { "embedded" => { "fake/rate/few/Penstock" => 1.0 } }
    session = Bench::Session.new({})
    compared = nil
    capture_io { compared = session.send(:compare_again, { "fake" => result_of(first) }, committed, &block) }
    compared
  end

  def command(*arguments)
    Limited.capture3(RbConfig.ruby, "-w", COMMAND, *arguments)
  end
end
