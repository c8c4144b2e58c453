# frozen_string_literal: true

require "tmpdir"
require "test_helper"
require_relative "../support/proofs"

# How rake proofs treats the results of its commands, and which proofs a change concerns.
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
    tasks, status = Open3.capture2("rake", "--silent", "--all", "--prereqs", chdir: ChangedPaths::ROOT)
    assert_predicate status, :success?
    assert_empty Proofs::TASKS.map { |name| "rake test:#{name}" } - tasks.lines(chomp: true)
  end

  # ---- which proofs a change concerns ----

  def test_a_file_concerns_the_proofs_of_its_part
    assert_equal %w[app_storm consumer_storm mutations], short("lib/penstock/app/lane.rb")
    consumer = Proofs.tasks(["ext/penstock/core/consume/ledger.c"])
    assert_empty %w[short_proofs mutations tsan asan consumer_storm] - consumer
    assert_empty consumer & %w[fuzz admin_loops overload]
    assert_includes short("ext/penstock/message_pack/engine.h"), "message_pack_engine"
  end

  def test_documents_and_other_tests_concern_no_proof
    paths = %w[docs/groups.md README.md test/consumer/batch_test.rb lib/penstock/version.rb bench/run.rb]
    assert_empty Proofs.tasks(paths) | Proofs.short_forms(paths)
  end

  def test_code_of_an_unknown_part_concerns_all_proofs
    %w[ext/penstock/core/base/new.c ext/penstock/new/part.c lib/penstock/new.rb lib/penstock.rb].each do |path|
      assert_equal [Proofs::TASKS, Proofs::SHORT], [Proofs.tasks([path]), short(path)], path
    end
  end

  def test_what_a_proof_is_made_of_concerns_it
    assert_equal %w[overload], short("test/proofs/support/overload.rb")
    assert_equal %w[app_storm consumer_storm], short("test/proofs/support/consumer_storm/member.rb")
    assert_equal %w[core], short("test/c/core_parts.c")
    assert_equal %w[gc_held], short("test/proofs/gc_held_test.rb")
    assert_equal %w[mutations], short("test/proofs/mutations/gc.rb")
    assert_equal %w[ractors], Proofs.tasks(["test/proofs/support/ractor_storm.rb"])
  end

  def test_each_form_of_the_table_is_the_name_of_a_proof
    names = Proofs::TASKS | Proofs::SHORT
    assert_empty(Proofs::CONCERNED.values.flatten.uniq.reject { |form| names.any? { |name| File.fnmatch(form, name) } })
  end

  def test_changed_files_are_committed_changed_or_new
    skip "needs git" unless system("git", "--version", out: File::NULL)
    Dir.mktmpdir do |directory|
      author = %w[-c user.name=a -c user.email=b]
      git = ->(*arguments) { assert system("git", *author, *arguments, chdir: directory, out: File::NULL) }
      write = ->(name, text) { File.write(File.join(directory, name), text) }
      git["init", "--quiet"]
      %w[same renamed edited].each { |name| write[name, name * 9] }
      git["add", "."]
      git["commit", "--quiet", "--message", "one"]
      git["mv", "renamed", "moved"]
      git["commit", "--quiet", "--message", "two"]
      write["edited", "other"]
      write["n\u00e9w", ""]
      assert_equal %W[edited moved n\u00e9w renamed], ChangedPaths.since("HEAD~1", root: directory).sort
      assert_raises(ArgumentError) { ChangedPaths.since("--all", root: directory) }
    end
  end

  private

  def short(*paths) = Proofs.short_forms(paths).map { |file| File.basename(file, "_test.rb") }

  def proofs(**programs)
    Proofs.new(programs.to_h { |name, program| [name.to_s, [RbConfig.ruby, "-e", program]] }, @output)
  end

  # @return [Array<Array(String, String, String)>] state, name, last line
  def table = @output.string[/==== proofs\n(.*)\z/m, 1].lines.map { |line| line.split.values_at(0, 3, 4) }
end
