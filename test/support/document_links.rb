# frozen_string_literal: true

# The links and images of a page of Markdown, and where they lead.
class DocumentLinks
  FENCE = /^```.*?^```/m
  LINK = /\]\(([^)\s]+)\)|\b(?:src|srcset|href)="([^"\s]+)"/
  ELSEWHERE = /\A(?:https?:|mailto:)/

  # @param root [String] the directory that no link may leave
  def initialize(root)
    @root = File.realpath(root)
  end

  # @return [Array<String>] paths of all pages
  def pages = Dir[File.join(@root, "{docs/**/,}*.md")]

  # @return [Array<String>] what leads nowhere: "docs/waiting.md: forking.md#no-such-heading"
  def broken
    pages.flat_map do |page|
      name = page.delete_prefix("#{@root}/")
      targets(page).reject { |target| leads_somewhere?(target, page) }.map { |target| "#{name}: #{target}" }
    end
  end

  # @return [Array<String>] what the page links to or shows, but for other sites
  def targets(page) = File.read(page).gsub(FENCE, "").scan(LINK).map { |link| link.compact.first }.grep_v(ELSEWHERE)

  private

  def leads_somewhere?(target, page)
    path, anchor = target.split("#", 2)
    file = path.empty? ? page : File.expand_path(path, File.dirname(page))
    return false unless file.start_with?("#{@root}/") && File.exist?(file)

    anchor.nil? || anchors(file).include?(anchor)
  end

  # @return [Array<String>] as GitHub makes them of the headings
  def anchors(file)
    @anchors ||= {}
    @anchors[file] ||= File.read(file).gsub(FENCE, "").scan(/^#+ (.+)$/).flatten.map do |heading|
      heading.downcase.gsub(/[^\p{Word}\- ]/, "").tr(" ", "-")
    end
  end
end
