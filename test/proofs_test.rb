# frozen_string_literal: true

require "test_helper"
require_relative "support/proofs"

# How rake proofs treats the results of its commands.
class ProofsTest < PenstockTest
  def setup
    super
    @output = StringIO.new
  end

  def test_a_failed_proof_fails_the_run_and_the_others_still_run
    refute proofs(first: "puts 1", second: "puts 'half'; exit 3", third: "puts 3; puts").run
    assert_equal [%w[passed first 1], %w[FAILED second half], %w[passed third 3]], table
  end

  def test_the_run_passes_if_all_proofs_pass
    assert proofs(first: "puts 1", second: "warn 2").run
    assert_equal [%w[passed first 1], %w[passed second 2]], table
  end

  def test_a_killed_proof_has_failed
    refute proofs(first: "$stdout.sync = true; puts 1; Process.kill(:KILL, Process.pid)").run
    assert_equal [%w[FAILED first 1]], table
  end

  def test_a_missing_command_has_failed
    refute Proofs.new({ "first" => ["/nonexistent"] }, @output).run
    assert_match(/FAILED .* first .*No such file/, @output.string)
  end

  def test_parts_of_names_select_proofs
    assert proofs(first: "puts 1", second: "exit 1", third: "puts 3").run(%w[fir thi])
    assert_equal [%w[passed first 1], %w[passed third 3]], table
    assert_raises(ArgumentError) { proofs(first: "puts 1").run(%w[fir other]) }
  end

  def test_each_proof_is_a_task
    tasks = Dir["#{__dir__}/../rakelib/*.rake"].flat_map { |file| File.read(file).scan(/task[ (]:?(\w+)/) }.flatten
    assert_empty File.read("#{__dir__}/../rakelib/proofs.rake")[/%w\[(.*?)\]/m, 1].split - tasks
  end

  private

  def proofs(**programs)
    Proofs.new(programs.to_h { |name, program| [name.to_s, [RbConfig.ruby, "-e", program]] }, @output)
  end

  # @return [Array<Array(String, String, String)>] state, name, last line
  def table = @output.string[/==== proofs\n(.*)\z/m, 1].lines.map { |line| line.split.values_at(0, 3, 4) }
end
