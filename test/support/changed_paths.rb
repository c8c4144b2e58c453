# frozen_string_literal: true

require "open3"

# The files that differ from a commit, committed or not.
module ChangedPaths
  ROOT = File.expand_path("../..", __dir__)

  # @param ref [String] a commit, such as "origin/main"
  # @return [Array<String>] relative to the repository; a file that was renamed counts with both names
  def self.since(ref, root: ROOT)
    commit = git(root, "rev-parse", "--verify", "--end-of-options", "#{ref}^{commit}").first
    git(root, "diff", "--name-only", "--no-renames", commit) | git(root, "ls-files", "--others", "--exclude-standard")
  end

  def self.git(root, *arguments)
    output, error, status = Open3.capture3("git", "-c", "core.quotePath=false", *arguments, chdir: root)
    raise ArgumentError, "git #{arguments.join(" ")}: #{error}" unless status.success?

    output.lines(chomp: true)
  end
  private_class_method :git
end
